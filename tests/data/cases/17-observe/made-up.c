// Calls on pairs of sockets that move bytes in pieces, with the sums that they return.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int pair[2];
    static char bytes[4096];
    struct iovec pieces[2] = {{bytes, 100}, {bytes, 200}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    int datagrams = argc > 1 && !strcmp(argv[1], "datagrams");
    socketpair(AF_UNIX, datagrams ? SOCK_SEQPACKET : SOCK_STREAM, 0, pair);
    long sent = 0, received = 0;
    for (int i = 0; i < 10; i++) {
        sent += send(pair[0], bytes, 50, 0);
        sent += writev(pair[0], pieces, 2);
        sent += pwritev2(pair[0], pieces, 2, -1, RWF_NOWAIT);
        sent += sendmsg(pair[0], &message, 0);
        if (sendmmsg(pair[0], messages, 2, 0) == 2)
            sent += messages[0].msg_len + messages[1].msg_len;
        // The last asks for more than there is.
        for (int calls = 0; calls < 20; calls++) {
            long n = calls % 2 ? recv(pair[1], bytes, 300, MSG_DONTWAIT) : 0;
            n += calls % 2 ? 0 : recvmsg(pair[1], &message, MSG_DONTWAIT);
            received += n > 0 ? n : 0;
        }
    }
    fprintf(stderr, "SELF sent=%ld received=%ld\n", sent, received);
    return 0;
}
