#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <unistd.h>
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif
static void die(const char*m){perror(m);exit(9);}
static int lst(int proto,struct sockaddr_in*a){int s=socket(AF_INET,SOCK_STREAM,proto);if(s<0)die("socket");memset(a,0,sizeof *a);a->sin_family=AF_INET;a->sin_addr.s_addr=htonl(INADDR_LOOPBACK);if(bind(s,(void*)a,sizeof *a))die("bind");socklen_t l=sizeof *a;getsockname(s,(void*)a,&l);if(listen(s,1000))die("listen");return s;}
static void*drain(void*p){int fd=*(int*)p;static __thread char b[65536];long n,t=0;while((n=read(fd,b,sizeof b))>0)t+=n;close(fd);return (void*)t;}
int main(int c,char**v){const char*m=v[1];long N=c>2?atol(v[2]):0;struct sockaddr_in a;static char buf[1<<20];
 if(!strcmp(m,"eagain")){ // nonblocking sends into a peer that does not read
  int l=lst(0,&a),s=socket(AF_INET,SOCK_STREAM,0);connect(s,(void*)&a,sizeof a);int r=accept(l,0,0);fcntl(s,F_SETFL,O_NONBLOCK);long ok=0,ag=0,calls=0;
  for(long i=0;i<N;i++){long n=send(s,buf,sizeof buf,0);calls++;if(n>0)ok+=n;else ag++;}
  fprintf(stderr,"SELF sent=%ld calls=%ld eagain=%ld\n",ok,calls,ag);(void)r;return 0;}
 if(!strcmp(m,"tfo")||!strcmp(m,"mptcp")){
  int mp=!strcmp(m,"mptcp")?IPPROTO_MPTCP:0;int l=lst(mp,&a);int q=5;if(!mp)setsockopt(l,IPPROTO_TCP,TCP_FASTOPEN,&q,sizeof q);
  pid_t p=fork();if(!p){long t=0;for(int k=0;k<3;k++){int r=accept(l,0,0);t+=(long)drain(&r);}fprintf(stderr,"SELF child received=%ld\n",t);_exit(0);}
  close(l);long t=0;for(int k=0;k<3;k++){int s=socket(AF_INET,SOCK_STREAM,mp);long n;if(!mp)n=sendto(s,buf,1000,MSG_FASTOPEN,(void*)&a,sizeof a);else{if(connect(s,(void*)&a,sizeof a))die("connect");n=send(s,buf,1000,0);}if(n<0)die("send");t+=n;for(int i=0;i<100;i++){n=send(s,buf,10000,0);if(n>0)t+=n;}close(s);}
  fprintf(stderr,"SELF parent sent=%ld\n",t);int st;wait(&st);return 0;}
 if(!strcmp(m,"udp")){ // sendmmsg + GSO + recvmmsg
  int s=socket(AF_INET,SOCK_DGRAM,0),r=socket(AF_INET,SOCK_DGRAM,0);memset(&a,0,sizeof a);a.sin_family=AF_INET;a.sin_addr.s_addr=htonl(INADDR_LOOPBACK);bind(r,(void*)&a,sizeof a);socklen_t l=sizeof a;getsockname(r,(void*)&a,&l);connect(s,(void*)&a,sizeof a);int big=8<<20;setsockopt(r,SOL_SOCKET,SO_RCVBUFFORCE,&big,sizeof big);
  struct mmsghdr mm[64];struct iovec io[64];long sm=0,sg=0,rc=0,rm=0;
  for(int k=0;k<N;k++){memset(mm,0,sizeof mm);for(int i=0;i<64;i++){io[i].iov_base=buf;io[i].iov_len=1000;mm[i].msg_hdr.msg_iov=io+i;mm[i].msg_hdr.msg_iovlen=1;}int n=sendmmsg(s,mm,64,0);for(int i=0;i<n;i++)sm+=mm[i].msg_len;
   static char rb[64][2000];memset(mm,0,sizeof mm);for(int i=0;i<64;i++){io[i].iov_base=rb[i];io[i].iov_len=2000;mm[i].msg_hdr.msg_iov=io+i;mm[i].msg_hdr.msg_iovlen=1;}n=recvmmsg(r,mm,64,MSG_DONTWAIT,0);for(int i=0;i<n;i++)rm+=mm[i].msg_len;}
  int seg=1400;setsockopt(s,SOL_UDP,UDP_SEGMENT,&seg,sizeof seg);
  for(int k=0;k<N;k++){long n=send(s,buf,14000,0);if(n>0)sg+=n;for(;;){n=recv(r,buf,65536,MSG_DONTWAIT);if(n<=0)break;rc+=n;}}
  fprintf(stderr,"SELF sendmmsg=%ld gso=%ld sent=%ld recvmmsg=%ld recv=%ld received=%ld\n",sm,sg,sm+sg,rm,rc,rm+rc);return 0;}
 if(!strcmp(m,"conns")){ // many short connections
  int l=lst(0,&a);pid_t p=fork();if(!p){long t=0,n=0;for(long k=0;k<N;k++){int r=accept(l,0,0);char b[64];long x;while((x=read(r,b,64))>0)t+=x;n++;write(r,"bye",3);close(r);}fprintf(stderr,"SELF server conns=%ld received=%ld sent=%ld\n",n,t,3*n);_exit(0);}
  close(l);long t=0,rr=0;struct linger lg={1,0};(void)lg;for(long k=0;k<N;k++){int s=socket(AF_INET,SOCK_STREAM,0);if(connect(s,(void*)&a,sizeof a))die("connect");t+=write(s,"hello",5);shutdown(s,SHUT_WR);char b[8];rr+=read(s,b,8);setsockopt(s,SOL_SOCKET,SO_LINGER,&lg,sizeof lg);close(s);}
  int st;wait(&st);fprintf(stderr,"SELF client conns=%ld sent=%ld received=%ld\n",N,t,rr);return 0;}
 if(!strcmp(m,"forks")){long ok=0;for(long k=0;k<N;k++){pid_t p=fork();if(!p){write(2,"",0);getppid();_exit(0);}if(p>0)ok++;int st;wait(&st);}fprintf(stderr,"SELF forks=%ld\n",ok);return 0;}
 if(!strcmp(m,"daemon")){ // double fork, setsid, parent leaves at once; the daemon works 2 s more
  int l=lst(0,&a);if(fork())_exit(7);setsid();if(fork())_exit(0);usleep(1500000);int s=socket(AF_INET,SOCK_STREAM,0);connect(s,(void*)&a,sizeof a);int r=accept(l,0,0);long t=0;for(int i=0;i<100;i++){t+=write(s,buf,1000);read(r,buf,1000);}return 0;}
 if(!strcmp(m,"unix")){int sv[2];socketpair(AF_UNIX,SOCK_STREAM,0,sv);long t=0,r=0;for(long k=0;k<N;k++){t+=write(sv[0],buf,10000);long n=read(sv[1],buf,20000);r+=n;}fprintf(stderr,"SELF unix sent=%ld received=%ld\n",t,r);return 0;}
 if(!strcmp(m,"splice")){int l=lst(0,&a),s=socket(AF_INET,SOCK_STREAM,0);connect(s,(void*)&a,sizeof a);int r=accept(l,0,0);int p[2];pipe(p);int z=open("/dev/zero",O_RDONLY),nul=open("/dev/null",O_WRONLY);(void)z;int f=open(v[3],O_RDONLY);long t=0,q=0;for(long k=0;k<N;k++){off_t o=0;t+=sendfile(s,f,&o,65536);long n=splice(r,0,p[1],0,65536,0);if(n>0){q+=n;splice(p[0],0,nul,0,n,0);}}fprintf(stderr,"SELF sendfile=%ld spliced-in=%ld\n",t,q);return 0;}
 if(!strcmp(m,"writev")){int l=lst(0,&a),s=socket(AF_INET,SOCK_STREAM,0);connect(s,(void*)&a,sizeof a);int r=accept(l,0,0);struct iovec io[3]={{buf,100},{buf,200},{buf,300}};struct msghdr h={0};h.msg_iov=io;h.msg_iovlen=3;long t=0,q=0;for(long k=0;k<N;k++){t+=writev(s,io,3);t+=sendmsg(s,&h,0);t+=pwritev2(s,io,3,-1,0);long n=readv(r,io,3);if(n>0)q+=n;n=recvmsg(r,&h,0);if(n>0)q+=n;n=preadv2(r,io,3,-1,0);if(n>0)q+=n;}fprintf(stderr,"SELF sent=%ld received=%ld\n",t,q);return 0;}
 if(!strcmp(m,"dup")){ // the socket is passed to a child by SCM_RIGHTS
  int l=lst(0,&a),s=socket(AF_INET,SOCK_STREAM,0);connect(s,(void*)&a,sizeof a);int r=accept(l,0,0);int d=dup2(s,500);close(s);pid_t p=fork();if(!p){long t=0;for(long k=0;k<N;k++)t+=write(d,buf,1000);fprintf(stderr,"SELF child sent=%ld\n",t);_exit(0);}close(d);long q=0,n;while((n=read(r,buf,65536))>0)q+=n;int st;wait(&st);fprintf(stderr,"SELF parent received=%ld\n",q);return 0;}
 return 2;}
