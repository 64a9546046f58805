// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * zcnic: Ethernet devices in pairs, connected back to back, in software only, that look to
 * the stack like NICs with memory providers. Receive buffers come from a page pool that may
 * be bound to an io_uring area or a dmabuf, headers are split off, flows are steered to
 * queues. README.md explains what it is for.
 *
 * Two parts are separate, as they are with a bus between them:
 *
 *  - the card: a kernel thread for each receive queue ("zcnic1-rx3"), which takes packets
 *    off the wire, segments them (TSO), copies their bytes by DMA address into buffers that
 *    the driver has posted, and raises an interrupt. The copy is what a NIC does by DMA.
 *  - the driver: ndo_start_xmit(), NAPI, ethtool. It never touches a byte of payload.
 *
 * Between the two are two rings with one producer and one consumer each: buffers, which
 * the driver posts, and completions, which the card posts.
 */
#include <linux/dma-mapping.h>
#include <linux/etherdevice.h>
#include <linux/ethtool.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/platform_device.h>
#include <linux/smp.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/ip.h>
#include <net/netdev_lock.h>
#include <net/netdev_queues.h>
#include <net/netdev_rx_queue.h>
#include <net/page_pool/helpers.h>

#define MAX_PAIRS	16
#define MAX_QUEUES	16
#define MAX_RULES	32
#define MAX_CONTEXTS	8	/* of RSS; 0 is the device's own */
#define INDIR		128
#define TX_LIMIT	256	/* packets in flight of a transmit queue */
#define COMPLETIONS	256	/* capacity of a queue; a power of two */
#define HEADERS		256	/* space for headers, and for packets that are not split */

static unsigned int pairs = 1;
module_param(pairs, uint, 0444);
MODULE_PARM_DESC(pairs, "pairs of devices, 1 to 16");
static unsigned int queues = 4;
module_param(queues, uint, 0444);
MODULE_PARM_DESC(queues, "queue pairs of each device, 1 to 16");
static unsigned int ring = 512;
module_param(ring, uint, 0444);
MODULE_PARM_DESC(ring, "receive buffers that a queue keeps posted, 64 to 8192");
static char *driver = "zcnic";
module_param(driver, charp, 0444);
MODULE_PARM_DESC(driver, "driver name in sysfs and ethtool");

/* Fault injection in all devices; 0 is off. */
static unsigned int drop;
module_param(drop, uint, 0644);
MODULE_PARM_DESC(drop, "drop one packet in N");
static unsigned int reorder;
module_param(reorder, uint, 0644);
MODULE_PARM_DESC(reorder, "let the next packet overtake one packet in N");
static unsigned int starve;
module_param(starve, uint, 0644);
MODULE_PARM_DESC(starve, "find no buffers for one packet in N");

/* The same, periodically. */
static unsigned int flap, reset;
static void zc_flap(struct work_struct *work);
static void zc_reset(struct work_struct *work);
static DECLARE_DELAYED_WORK(zc_flap_work, zc_flap);
static DECLARE_DELAYED_WORK(zc_reset_work, zc_reset);
static bool ready;

static void zc_schedule(struct delayed_work *work, unsigned int ms)
{
	if (ms && READ_ONCE(ready))
		mod_delayed_work(system_percpu_wq, work, msecs_to_jiffies(ms));
}

static int zc_set_period(const char *text, const struct kernel_param *kp)
{
	int err = param_set_uint(text, kp);

	zc_schedule(&zc_flap_work, flap);
	zc_schedule(&zc_reset_work, reset);
	return err;
}

static const struct kernel_param_ops zc_period_ops = {
	.set = zc_set_period,
	.get = param_get_uint,
};
module_param_cb(flap, &zc_period_ops, &flap, 0644);
MODULE_PARM_DESC(flap, "take the link down every N milliseconds, for a tenth of that time");
module_param_cb(reset, &zc_period_ops, &reset, 0644);
MODULE_PARM_DESC(reset, "restart every receive queue every N milliseconds");

struct zc_completion {
	u8 head[HEADERS];
	netmem_ref buffers[MAX_SKB_FRAGS];
	u32 linear, len;		/* bytes of head, and of buffers */
	u32 hash;
	u16 mss, segments;		/* of a packet that TSO splits */
	bool v6, checked;
};

/* What a memory provider replaces. Indices are free-running, sizes are powers of two. */
struct zc_ring {
	struct page_pool *pool;
	netmem_ref *buffers;
	struct zc_completion *completions;
	u32 size;
	u32 bytes;			/* of one buffer */
	u32 posted, taken;		/* buffers: by the driver, by the card */
	u32 done, polled;		/* completions: by the card, by the driver */
};

struct zc_rxq {
	struct napi_struct napi;
	struct net_device *dev;
	struct sk_buff_head wire;
	struct zc_ring ring;
	struct task_struct *card;
	call_single_data_t irq;
	int cpu;			/* the one that is interrupted */
	bool live;
	u32 polls;
	u64 packets, bytes, gro_packets, gro_bytes;
	u64 asked, no_buffer, waits, to_pages, to_iovs, from_iovs;
	u64 dropped, overtaken, starved, unpolled, resets;
};

struct zc_txq {
	atomic_t under_way;
	u64 packets, bytes, unreadable, dropped;
};

struct zc_rule {
	bool used;
	struct ethtool_rx_flow_spec fs;
	u32 context;
};

struct zc_dev {
	struct net_device *dev, *peer;
	struct device *dma;
	struct zc_rxq rx[MAX_QUEUES];
	struct zc_txq tx[MAX_QUEUES];
	struct zc_rule rules[MAX_RULES];
	u32 indir[MAX_CONTEXTS][INDIR];
	u32 ring, thresh;
	bool split, open;
	u64 flaps;
};

/* Both devices of a pair are next to each other. */
static struct net_device *ports[2 * MAX_PAIRS];
static unsigned int devices;	/* of them */

/* What a device reads and writes by DMA. Without an IOMMU, bus addresses are physical. */
static void *zc_bus(dma_addr_t address)
{
	return phys_to_virt((phys_addr_t)address);
}

/* Whether to act on this event, for one in `of`; `n` have happened. */
static bool zc_turn(unsigned int of, u64 n)
{
	return of && n % of == of - 1;
}

/* ---- rings of a receive queue ---- */

static void ring_free(struct zc_ring *r)
{
	if (!r->pool)
		return;
	for (; r->polled != r->done; r->polled++) {
		struct zc_completion *c = &r->completions[r->polled % COMPLETIONS];
		u32 i;

		for (i = 0; i * r->bytes < c->len; i++)
			page_pool_put_full_netmem(r->pool, c->buffers[i], false);
	}
	for (; r->taken != r->posted; r->taken++)
		page_pool_put_full_netmem(r->pool, r->buffers[r->taken % r->size], false);
	page_pool_destroy(r->pool);
	kvfree(r->completions);
	kvfree(r->buffers);
	memset(r, 0, sizeof(*r));
}

static int ring_alloc(struct zc_dev *zc, struct zc_ring *r, int idx,
		      const struct netdev_queue_config *qcfg)
{
	unsigned int order = qcfg->rx_page_size ? ilog2(qcfg->rx_page_size) - PAGE_SHIFT : 0;
	struct page_pool_params params = {
		.order = order,
		.pool_size = zc->ring,
		.nid = NUMA_NO_NODE,
		.dev = zc->dma,
		.dma_dir = DMA_FROM_DEVICE,
		.max_len = PAGE_SIZE << order,
		.netdev = zc->dev,
		.queue_idx = idx,
		.flags = PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV,
	};
	int err = -ENOMEM;

	if (zc->split)
		params.flags |= PP_FLAG_ALLOW_UNREADABLE_NETMEM;
	memset(r, 0, sizeof(*r));
	r->size = zc->ring;
	r->bytes = PAGE_SIZE << order;
	r->buffers = kvcalloc(r->size, sizeof(*r->buffers), GFP_KERNEL);
	r->completions = kvcalloc(COMPLETIONS, sizeof(*r->completions), GFP_KERNEL);
	if (r->buffers && r->completions) {
		r->pool = page_pool_create(&params);
		err = PTR_ERR_OR_ZERO(r->pool);
	}
	if (err) {
		kvfree(r->completions);
		kvfree(r->buffers);
		memset(r, 0, sizeof(*r));
	}
	return err;
}

/* The driver posts all buffers that are available. */
static void ring_fill(struct zc_ring *r)
{
	u32 posted = r->posted;

	while (posted - smp_load_acquire(&r->taken) < r->size) {
		netmem_ref buffer = page_pool_alloc_netmems(r->pool, GFP_ATOMIC | __GFP_NOWARN);

		if (!buffer)
			break;
		r->buffers[posted++ % r->size] = buffer;
	}
	smp_store_release(&r->posted, posted);
}

/* ---- a packet on the wire ---- */

struct headers {
	u8 proto;
	bool v6;
	u16 l3, l4, payload;	/* offsets; payload is 0 if unknown */
	__be16 sport, dport;
	union {
		__be32 v4;
		struct in6_addr v6;
	} src, dst;
};

static void zc_parse(const struct sk_buff *skb, struct headers *h)
{
	const u8 *data = skb->data;
	u32 len = skb_headlen(skb);
	__be16 type = ((const struct ethhdr *)data)->h_proto;

	memset(h, 0, sizeof(*h));
	h->l3 = ETH_HLEN;
	if (type == htons(ETH_P_IP) && len >= ETH_HLEN + sizeof(struct iphdr)) {
		const struct iphdr *ip = (const void *)(data + ETH_HLEN);

		if (ip_is_fragment(ip))
			return;
		h->l4 = h->l3 + ip->ihl * 4;
		h->proto = ip->protocol;
		h->src.v4 = ip->saddr;
		h->dst.v4 = ip->daddr;
	} else if (type == htons(ETH_P_IPV6) && len >= ETH_HLEN + sizeof(struct ipv6hdr)) {
		const struct ipv6hdr *ip = (const void *)(data + ETH_HLEN);

		h->v6 = true;
		h->l4 = h->l3 + sizeof(*ip);
		h->proto = ip->nexthdr;
		h->src.v6 = ip->saddr;
		h->dst.v6 = ip->daddr;
	} else {
		return;
	}
	if (h->proto == IPPROTO_TCP && len >= h->l4 + sizeof(struct tcphdr)) {
		const struct tcphdr *tcp = (const void *)(data + h->l4);

		h->sport = tcp->source;
		h->dport = tcp->dest;
		if (len >= h->l4 + tcp->doff * 4 && h->l4 + tcp->doff * 4 <= HEADERS)
			h->payload = h->l4 + tcp->doff * 4;
	} else if (h->proto == IPPROTO_UDP && len >= h->l4 + sizeof(struct udphdr)) {
		const struct udphdr *udp = (const void *)(data + h->l4);

		h->sport = udp->source;
		h->dport = udp->dest;
	}
}

static bool masked(const void *a, const void *b, const void *mask, u32 words)
{
	const __be32 *x = a, *y = b, *m = mask;
	u32 i;

	for (i = 0; i < words; i++)
		if ((x[i] ^ y[i]) & m[i])
			return false;
	return true;
}

static bool zc_matches(const struct ethtool_rx_flow_spec *fs, const struct headers *h)
{
	u32 type = fs->flow_type & ~FLOW_RSS;

	if (!h->l4)
		return false;
	switch (type) {
	case TCP_V4_FLOW:
	case UDP_V4_FLOW: {
		const struct ethtool_tcpip4_spec *v = &fs->h_u.tcp_ip4_spec, *m = &fs->m_u.tcp_ip4_spec;

		return !h->v6 && h->proto == (type == TCP_V4_FLOW ? IPPROTO_TCP : IPPROTO_UDP) &&
		       masked(&h->src, &v->ip4src, &m->ip4src, 1) &&
		       masked(&h->dst, &v->ip4dst, &m->ip4dst, 1) &&
		       !((h->sport ^ v->psrc) & m->psrc) && !((h->dport ^ v->pdst) & m->pdst);
	}
	case TCP_V6_FLOW:
	case UDP_V6_FLOW: {
		const struct ethtool_tcpip6_spec *v = &fs->h_u.tcp_ip6_spec, *m = &fs->m_u.tcp_ip6_spec;

		return h->v6 && h->proto == (type == TCP_V6_FLOW ? IPPROTO_TCP : IPPROTO_UDP) &&
		       masked(&h->src, v->ip6src, m->ip6src, 4) &&
		       masked(&h->dst, v->ip6dst, m->ip6dst, 4) &&
		       !((h->sport ^ v->psrc) & m->psrc) && !((h->dport ^ v->pdst) & m->pdst);
	}
	}
	return false;
}

static u32 zc_hash(const struct headers *h)
{
	u32 hash = jhash(&h->src, sizeof(h->src), 0) ^ jhash(&h->dst, sizeof(h->dst), 0);

	return jhash_2words(hash, ((__force u32)h->sport << 16) | (__force u32)h->dport, h->proto);
}

/* The receive queue of a packet. */
static u32 zc_steer(struct zc_dev *zc, const struct headers *h)
{
	u32 i, hash = zc_hash(h), n = zc->dev->real_num_rx_queues;

	if (zc->dev->features & NETIF_F_NTUPLE) {
		for (i = 0; i < MAX_RULES; i++) {
			struct zc_rule *rule = &zc->rules[i];
			u32 queue;

			if (!smp_load_acquire(&rule->used) || !zc_matches(&rule->fs, h))
				continue;
			queue = rule->fs.ring_cookie;
			if (rule->fs.flow_type & FLOW_RSS)
				queue += zc->indir[rule->context][hash % INDIR];
			return queue % n;
		}
	}
	return zc->indir[0][hash % INDIR] % n;
}

/* ---- the card ---- */

/* Reads bytes of a packet as a device does: frags by their bus addresses. */
struct gather {
	struct zc_rxq *q;
	struct device *dma;
	struct sk_buff *skb;
	int frag;		/* -1: the linear part */
	u32 off;
};

static void zc_gather(struct gather *g, void *to, u32 len)
{
	while (len) {
		const skb_frag_t *frag = NULL;
		u32 size, n;

		if (g->frag < 0) {
			size = skb_headlen(g->skb);
			n = min(len, size - g->off);
			memcpy(to, g->skb->data + g->off, n);
		} else {
			dma_addr_t address;

			frag = &skb_shinfo(g->skb)->frags[g->frag];
			size = skb_frag_size(frag);
			n = min(len, size - g->off);
			address = __skb_frag_dma_map(g->dma, frag, g->off, n, DMA_TO_DEVICE);
			memcpy(to, zc_bus(address), n);
			if (skb_frag_is_net_iov(frag))
				g->q->from_iovs += n;
			else
				dma_unmap_page(g->dma, address, n, DMA_TO_DEVICE);
		}
		to += n;
		len -= n;
		g->off += n;
		if (g->off == size) {
			g->frag++;
			g->off = 0;
		}
	}
}

static void zc_irq(void *rxq)
{
	struct zc_rxq *q = rxq;

	napi_schedule(&q->napi);
}

static void zc_interrupt(struct zc_rxq *q)
{
	local_bh_disable();	/* so that the softirq is not left to ksoftirqd */
	if (smp_call_function_single_async(q->cpu, &q->irq) == -ENXIO)
		napi_schedule(&q->napi);	/* that CPU is offline */
	local_bh_enable();
}

/* Waits for the driver. False: the queue has to stop. */
#define zc_await(q, condition)							\
	({									\
		bool met;							\
										\
		for (;;) {							\
			set_current_state(TASK_IDLE);				\
			met = (condition);					\
			if (met || kthread_should_park() || kthread_should_stop())	\
				break;						\
			schedule();						\
		}								\
		__set_current_state(TASK_RUNNING);				\
		met;								\
	})

/*
 * Waits for that many buffers as a link with pause frames does: until the driver has
 * polled once more. It does not wait for an application that returns no buffers.
 */
static bool zc_has_buffers(struct zc_rxq *q, u32 n)
{
	struct zc_ring *r = &q->ring;
	u32 polls = READ_ONCE(q->polls);

	if (zc_turn(READ_ONCE(starve), q->asked++)) {
		q->starved++;
		return false;
	}
	if (smp_load_acquire(&r->posted) - r->taken >= n)
		return true;
	if (n <= r->size) {
		q->waits++;
		zc_interrupt(q);
		zc_await(q, READ_ONCE(q->polls) != polls);
		if (smp_load_acquire(&r->posted) - r->taken >= n)
			return true;
	}
	q->no_buffer++;
	return false;
}

/*
 * Posts a completion: headers, and `len` bytes of payload in buffers. Null: there is no
 * space for it, and it is lost.
 */
static struct zc_completion *zc_land(struct zc_rxq *q, struct gather *g, const void *head,
				     u32 linear, u32 len)
{
	struct zc_ring *r = &q->ring;
	u32 i, n = DIV_ROUND_UP(len, r->bytes);
	struct zc_completion *c;

	if (r->done - smp_load_acquire(&r->polled) == COMPLETIONS) {
		zc_interrupt(q);
		if (!zc_await(q, r->done - smp_load_acquire(&r->polled) < COMPLETIONS)) {
			q->unpolled++;
			return NULL;
		}
	}
	if (n > MAX_SKB_FRAGS) {
		q->unpolled++;
		return NULL;
	}
	if (n && !zc_has_buffers(q, n))
		return NULL;
	c = &r->completions[r->done % COMPLETIONS];
	memcpy(c->head, head, linear);
	c->linear = linear;
	c->len = len;
	for (i = 0; i < n; i++, len -= min(len, r->bytes)) {
		netmem_ref buffer = r->buffers[r->taken % r->size];
		u32 part = min(len, r->bytes);

		zc_gather(g, zc_bus(page_pool_get_dma_addr_netmem(buffer)), part);
		if (netmem_is_net_iov(buffer))
			q->to_iovs += part;
		else
			q->to_pages += part;
		c->buffers[i] = buffer;
		smp_store_release(&r->taken, r->taken + 1);
	}
	q->packets++;
	q->bytes += linear + c->len;
	return c;
}

/* The segment that starts `at` bytes into the payload, as TSO splits it. */
static void zc_segment(struct zc_completion *c, const struct headers *h, u32 at, u32 mss, bool last)
{
	struct tcphdr *tcp = (void *)(c->head + h->l4);

	if (h->v6) {
		struct ipv6hdr *ip = (void *)(c->head + h->l3);

		ip->payload_len = htons(c->linear - h->l4 + c->len);
	} else {
		struct iphdr *ip = (void *)(c->head + h->l3);

		ip->tot_len = htons(c->linear - h->l3 + c->len);
		ip->id = htons(ntohs(ip->id) + at / mss);
		ip_send_check(ip);
	}
	tcp->seq = htonl(ntohl(tcp->seq) + at);
	if (!last)
		tcp->fin = tcp->psh = 0;
	if (at)
		tcp->cwr = 0;
}

static void zc_receive(struct zc_rxq *q, struct zc_dev *from, struct sk_buff *wire)
{
	struct zc_dev *zc = netdev_priv(q->dev);
	struct gather g = { .q = q, .dma = from->dma, .skb = wire, .frag = -1 };
	bool checked = wire->ip_summed == CHECKSUM_PARTIAL || skb_is_gso(wire);
	u32 mss = skb_shinfo(wire)->gso_size, whole, left, linear, at = 0;
	struct headers h;
	u8 head[HEADERS];

	zc_parse(wire, &h);
	linear = h.payload;
	if (!linear || (!mss && (!zc->split || wire->len - linear <= zc->thresh)))
		linear = min_t(u32, wire->len, HEADERS);
	if (!h.payload) {
		if (wire->ip_summed == CHECKSUM_PARTIAL && skb_checksum_help(wire))
			return;
		checked = false;
	}
	zc_gather(&g, head, linear);
	left = wire->len - linear;
	whole = mss && !(q->dev->features & NETIF_F_GRO_HW) ? mss : left;
	do {
		u32 n = min(left, whole);
		struct zc_completion *c = zc_land(q, &g, head, linear, n);

		if (!c)
			return;	/* the rest is lost with it */
		left -= n;
		c->v6 = h.v6;
		c->checked = checked;
		c->hash = zc_hash(&h);
		c->mss = whole > mss ? mss : 0;
		c->segments = c->mss ? skb_shinfo(wire)->gso_segs : 0;
		if (mss && !c->mss)
			zc_segment(c, &h, at, mss, !left);
		if (c->mss) {
			q->gro_packets++;
			q->gro_bytes += n;
		}
		at += n;
		smp_store_release(&q->ring.done, q->ring.done + 1);
	} while (left);
}

/* The sender's device is done with a packet. */
static void zc_complete(struct zc_dev *from, struct sk_buff *skb)
{
	u16 n = skb_get_queue_mapping(skb);
	struct zc_txq *tx = &from->tx[n];

	dev_consume_skb_any(skb);
	/* Pairs with the check in zc_xmit(). */
	if (atomic_dec_return(&tx->under_way) < TX_LIMIT / 2 &&
	    __netif_subqueue_stopped(from->dev, n) && netif_running(from->dev)) {
		local_bh_disable();
		netif_wake_subqueue(from->dev, n);
		local_bh_enable();
	}
}

static int zc_card(void *rxq)
{
	struct zc_rxq *q = rxq;
	struct zc_dev *zc = netdev_priv(q->dev), *from = netdev_priv(zc->peer);
	u64 seen = 0;

	while (!kthread_should_stop()) {
		struct sk_buff *skb, *late = NULL;

		if (kthread_should_park())
			kthread_parkme();
		skb = skb_dequeue(&q->wire);
		if (!skb) {
			zc_await(q, !skb_queue_empty(&q->wire));
			continue;
		}
		if (zc_turn(READ_ONCE(reorder), seen)) {
			late = skb;
			skb = skb_dequeue(&q->wire);
			q->overtaken += !!skb;
		}
		if (!skb)
			swap(skb, late);
		for (; skb; skb = late, late = NULL) {
			if (zc_turn(READ_ONCE(drop), seen++))
				q->dropped++;
			else
				zc_receive(q, from, skb);
			zc_complete(from, skb);
		}
		if (skb_queue_empty(&q->wire) || seen % 64 == 0)
			zc_interrupt(q);
		cond_resched();
	}
	return 0;
}

/* ---- the driver: packets ---- */

static netdev_features_t zc_features_check(struct sk_buff *skb, struct net_device *dev,
					   netdev_features_t features)
{
	struct headers h;

	if (skb_is_gso(skb)) {
		zc_parse(skb, &h);
		if (!h.payload)		/* extension headers, tunnels */
			features &= ~NETIF_F_GSO_MASK;
	}
	return features;
}

static netdev_tx_t zc_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct zc_dev *zc = netdev_priv(dev), *to = netdev_priv(zc->peer);
	u16 n = skb_get_queue_mapping(skb);
	struct zc_txq *tx = &zc->tx[n];
	struct headers h;
	struct zc_rxq *q;

	zc_parse(skb, &h);
	q = &to->rx[zc_steer(to, &h)];
	if (!READ_ONCE(q->live)) {	/* zc_stop() waits for all that saw it true */
		tx->dropped++;
		dev_kfree_skb_any(skb);
		return NETDEV_TX_OK;
	}
	tx->packets += skb_shinfo(skb)->gso_segs ?: 1;
	tx->bytes += skb->len;
	tx->unreadable += !skb_frags_readable(skb);
	/* Pairs with the check in zc_complete(). */
	if (atomic_inc_return(&tx->under_way) >= TX_LIMIT) {
		netif_stop_subqueue(dev, n);
		smp_mb__after_atomic();
		if (atomic_read(&tx->under_way) < TX_LIMIT)
			netif_start_subqueue(dev, n);
	}
	skb_tx_timestamp(skb);
	skb_queue_tail(&q->wire, skb);
	wake_up_process(q->card);
	return NETDEV_TX_OK;
}

/* Passes a completion to the stack. */
static void zc_up(struct zc_rxq *q, const struct zc_completion *c)
{
	struct zc_ring *r = &q->ring;
	struct sk_buff *skb = napi_alloc_skb(&q->napi, HEADERS);
	u32 i, left = c->len;

	if (skb)
		skb_put_data(skb, c->head, c->linear);
	for (i = 0; left; i++) {
		u32 n = min(left, r->bytes);

		page_pool_dma_sync_netmem_for_cpu(r->pool, c->buffers[i], 0, n);
		if (skb)
			skb_add_rx_frag_netmem(skb, i, c->buffers[i], 0, n, r->bytes);
		else
			page_pool_put_full_netmem(r->pool, c->buffers[i], true);
		left -= n;
	}
	if (!skb) {
		q->unpolled++;
		return;
	}
	skb_mark_for_recycle(skb);
	if (c->mss) {
		skb_shinfo(skb)->gso_size = c->mss;
		skb_shinfo(skb)->gso_segs = c->segments;
		skb_shinfo(skb)->gso_type = c->v6 ? SKB_GSO_TCPV6 : SKB_GSO_TCPV4;
	}
	skb->protocol = eth_type_trans(skb, q->dev);
	if (c->checked)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb_record_rx_queue(skb, q - ((struct zc_dev *)netdev_priv(q->dev))->rx);
	if (q->dev->features & NETIF_F_RXHASH)
		skb_set_hash(skb, c->hash, PKT_HASH_TYPE_L4);
	napi_gro_receive(&q->napi, skb);
}

static int zc_poll(struct napi_struct *napi, int budget)
{
	struct zc_rxq *q = container_of(napi, struct zc_rxq, napi);
	struct zc_ring *r = &q->ring;
	int done = 0;

	while (done < budget && r->polled != smp_load_acquire(&r->done)) {
		zc_up(q, &r->completions[r->polled % COMPLETIONS]);
		smp_store_release(&r->polled, r->polled + 1);
		done++;
	}
	ring_fill(r);
	WRITE_ONCE(q->polls, q->polls + 1);
	wake_up_process(q->card);	/* it may be waiting for buffers, or for space */
	if (done < budget)
		napi_complete_done(napi, done);
	return done;
}

/* ---- the driver: up and down ---- */

static void queue_up(struct zc_rxq *q, const struct zc_ring *r)
{
	q->ring = *r;
	page_pool_enable_direct_recycling(q->ring.pool, &q->napi);
	napi_enable_locked(&q->napi);
	local_bh_disable();
	napi_schedule(&q->napi);	/* posts buffers */
	local_bh_enable();
	kthread_unpark(q->card);
	wake_up_process(q->card);
}

static void queue_down(struct zc_rxq *q, struct zc_ring *r)
{
	kthread_park(q->card);
	while (READ_ONCE(q->irq.node.u_flags) & CSD_FLAG_LOCK)
		cpu_relax();
	napi_disable_locked(&q->napi);
	page_pool_disable_direct_recycling(q->ring.pool);
	*r = q->ring;
	memset(&q->ring, 0, sizeof(q->ring));
}

/* The link is up while both devices are. */
static void zc_carrier(struct zc_dev *zc)
{
	struct zc_dev *peer = netdev_priv(zc->peer);

	if (!READ_ONCE(zc->open) || !READ_ONCE(peer->open))
		return;
	netif_carrier_on(zc->dev);
	netif_carrier_on(zc->peer);
}

static int zc_open(struct net_device *dev)
{
	struct zc_dev *zc = netdev_priv(dev);
	u32 i, n = dev->real_num_rx_queues;
	struct zc_ring rings[MAX_QUEUES];
	int err;

	for (i = 0; i < n; i++) {
		struct zc_rxq *q = &zc->rx[i];
		struct netdev_queue_config qcfg;

		netdev_queue_config(dev, i, &qcfg);
		err = ring_alloc(zc, &rings[i], i, &qcfg);
		if (err)
			goto undo;
		q->card = kthread_create(zc_card, q, "%s-rx%u", dev->name, i);
		if (IS_ERR(q->card)) {
			err = PTR_ERR(q->card);
			ring_free(&rings[i]);
			goto undo;
		}
	}
	for (i = 0; i < n; i++) {
		struct zc_rxq *q = &zc->rx[i];

		netif_napi_add_config_locked(dev, &q->napi, zc_poll, i);
		netif_queue_set_napi(dev, i, NETDEV_QUEUE_TYPE_RX, &q->napi);
		netif_queue_set_napi(dev, i, NETDEV_QUEUE_TYPE_TX, &q->napi);
		queue_up(q, &rings[i]);
		WRITE_ONCE(q->live, true);
	}
	netif_tx_start_all_queues(dev);
	WRITE_ONCE(zc->open, true);
	zc_carrier(zc);
	return 0;
undo:
	while (i--) {
		kthread_stop(zc->rx[i].card);
		ring_free(&rings[i]);
	}
	return err;
}

static int zc_stop(struct net_device *dev)
{
	struct zc_dev *zc = netdev_priv(dev), *from = netdev_priv(zc->peer);
	u32 i;

	if (!zc->open)
		return 0;
	WRITE_ONCE(zc->open, false);
	netif_carrier_off(dev);
	netif_carrier_off(zc->peer);
	netif_tx_disable(dev);
	for (i = 0; i < dev->real_num_rx_queues; i++)
		WRITE_ONCE(zc->rx[i].live, false);
	synchronize_net();
	for (i = 0; i < dev->real_num_rx_queues; i++) {
		struct zc_rxq *q = &zc->rx[i];
		struct sk_buff *skb;
		struct zc_ring r;

		queue_down(q, &r);
		kthread_stop(q->card);
		netif_queue_set_napi(dev, i, NETDEV_QUEUE_TYPE_RX, NULL);
		netif_queue_set_napi(dev, i, NETDEV_QUEUE_TYPE_TX, NULL);
		netif_napi_del_locked(&q->napi);
		ring_free(&r);
		while ((skb = skb_dequeue(&q->wire)))
			zc_complete(from, skb);
	}
	return 0;
}

static void zc_stats(struct net_device *dev, struct rtnl_link_stats64 *s)
{
	struct zc_dev *zc = netdev_priv(dev);
	int i;

	for (i = 0; i < MAX_QUEUES; i++) {
		const struct zc_rxq *rx = &zc->rx[i];
		const struct zc_txq *tx = &zc->tx[i];

		s->rx_packets += rx->packets;
		s->rx_bytes += rx->bytes;
		s->rx_missed_errors += rx->no_buffer + rx->starved;
		s->rx_dropped += rx->unpolled;
		s->tx_packets += tx->packets;
		s->tx_bytes += tx->bytes;
		s->tx_dropped += tx->dropped;
	}
}

static const struct net_device_ops zc_netdev_ops = {
	.ndo_open = zc_open,
	.ndo_stop = zc_stop,
	.ndo_start_xmit = zc_xmit,
	.ndo_features_check = zc_features_check,
	.ndo_get_stats64 = zc_stats,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

/* ---- the driver: queues for memory providers ---- */

static int zc_mem_alloc(struct net_device *dev, struct netdev_queue_config *qcfg, void *mem, int idx)
{
	return ring_alloc(netdev_priv(dev), mem, idx, qcfg);
}

static void zc_mem_free(struct net_device *dev, void *mem)
{
	ring_free(mem);
}

static int zc_queue_start(struct net_device *dev, struct netdev_queue_config *qcfg, void *mem, int idx)
{
	struct zc_dev *zc = netdev_priv(dev);

	queue_up(&zc->rx[idx], mem);
	return 0;
}

static int zc_queue_stop(struct net_device *dev, void *mem, int idx)
{
	struct zc_dev *zc = netdev_priv(dev);

	zc->rx[idx].resets++;
	queue_down(&zc->rx[idx], mem);
	return 0;
}

static void zc_default_qcfg(struct net_device *dev, struct netdev_queue_config *qcfg)
{
	qcfg->rx_page_size = PAGE_SIZE;
}

static int zc_validate_qcfg(struct net_device *dev, struct netdev_queue_config *qcfg,
			    struct netlink_ext_ack *extack)
{
	if (qcfg->rx_page_size >= PAGE_SIZE && qcfg->rx_page_size <= SZ_64K &&
	    is_power_of_2(qcfg->rx_page_size))
		return 0;
	NL_SET_ERR_MSG(extack, "buffers are a power of two from a page to 64K");
	return -ERANGE;
}

static const struct netdev_queue_mgmt_ops zc_queue_ops = {
	.ndo_queue_mem_size = sizeof(struct zc_ring),
	.ndo_queue_mem_alloc = zc_mem_alloc,
	.ndo_queue_mem_free = zc_mem_free,
	.ndo_queue_start = zc_queue_start,
	.ndo_queue_stop = zc_queue_stop,
	.ndo_default_qcfg = zc_default_qcfg,
	.ndo_validate_qcfg = zc_validate_qcfg,
	.supported_params = QCFG_RX_PAGE_SIZE,
};

static void zc_queue_stats_rx(struct net_device *dev, int idx, struct netdev_queue_stats_rx *s)
{
	const struct zc_rxq *q = &((struct zc_dev *)netdev_priv(dev))->rx[idx];

	s->packets = q->packets;
	s->bytes = q->bytes;
	s->hw_drops = q->dropped + q->no_buffer + q->starved;
	s->hw_drop_overruns = q->no_buffer + q->starved;
	s->hw_gro_packets = q->gro_packets;
	s->hw_gro_bytes = q->gro_bytes;
}

static void zc_queue_stats_tx(struct net_device *dev, int idx, struct netdev_queue_stats_tx *s)
{
	const struct zc_txq *q = &((struct zc_dev *)netdev_priv(dev))->tx[idx];

	s->packets = q->packets;
	s->bytes = q->bytes;
}

static void zc_base_stats(struct net_device *dev, struct netdev_queue_stats_rx *rx,
			  struct netdev_queue_stats_tx *tx)
{
	rx->packets = rx->bytes = rx->hw_drops = rx->hw_drop_overruns = 0;
	rx->hw_gro_packets = rx->hw_gro_bytes = 0;
	tx->packets = tx->bytes = 0;
}

static const struct netdev_stat_ops zc_stat_ops = {
	.get_queue_stats_rx = zc_queue_stats_rx,
	.get_queue_stats_tx = zc_queue_stats_tx,
	.get_base_stats = zc_base_stats,
};

/* ---- ethtool: counters ---- */

static const struct {
	const char *name;
	size_t at;
} zc_counters[] = {
	/* Bytes of payload, by the kind of memory they were placed in. */
	{ "rx_to_pages_bytes", offsetof(struct zc_rxq, to_pages) },
	{ "rx_to_iovs_bytes", offsetof(struct zc_rxq, to_iovs) },
	{ "rx_no_buffer", offsetof(struct zc_rxq, no_buffer) },
	{ "rx_paused", offsetof(struct zc_rxq, waits) },
	{ "rx_lost_in_driver", offsetof(struct zc_rxq, unpolled) },
	{ "rx_queue_resets", offsetof(struct zc_rxq, resets) },
	{ "rx_asked_to_drop", offsetof(struct zc_rxq, dropped) },
	{ "rx_asked_to_reorder", offsetof(struct zc_rxq, overtaken) },
	{ "rx_asked_to_starve", offsetof(struct zc_rxq, starved) },
};

static const char * const zc_more_counters[] = {
	"tx_from_iovs_bytes", "tx_unreadable_packets", "link_flaps",
};

static int zc_get_sset_count(struct net_device *dev, int set)
{
	return set == ETH_SS_STATS ? ARRAY_SIZE(zc_counters) + ARRAY_SIZE(zc_more_counters) :
	       -EOPNOTSUPP;
}

static void zc_get_strings(struct net_device *dev, u32 set, u8 *to)
{
	int i;

	if (set != ETH_SS_STATS)
		return;
	for (i = 0; i < ARRAY_SIZE(zc_counters); i++)
		ethtool_puts(&to, zc_counters[i].name);
	for (i = 0; i < ARRAY_SIZE(zc_more_counters); i++)
		ethtool_puts(&to, zc_more_counters[i]);
}

static u64 zc_sum(struct zc_dev *zc, size_t at)
{
	u64 sum = 0;
	int q;

	for (q = 0; q < MAX_QUEUES; q++)
		sum += *(u64 *)((void *)&zc->rx[q] + at);
	return sum;
}

static void zc_get_ethtool_stats(struct net_device *dev, struct ethtool_stats *stats, u64 *to)
{
	struct zc_dev *zc = netdev_priv(dev), *peer = netdev_priv(zc->peer);
	u64 unreadable = 0;
	int i;

	for (i = 0; i < ARRAY_SIZE(zc_counters); i++)
		*to++ = zc_sum(zc, zc_counters[i].at);
	for (i = 0; i < MAX_QUEUES; i++)
		unreadable += zc->tx[i].unreadable;
	*to++ = zc_sum(peer, offsetof(struct zc_rxq, from_iovs));
	*to++ = unreadable;
	*to++ = zc->flaps;
}

/* ---- ethtool: rings, channels ---- */

static void zc_get_ringparam(struct net_device *dev, struct ethtool_ringparam *p,
			     struct kernel_ethtool_ringparam *k, struct netlink_ext_ack *extack)
{
	struct zc_dev *zc = netdev_priv(dev);

	p->rx_max_pending = 8192;
	p->rx_pending = zc->ring;
	p->tx_max_pending = p->tx_pending = TX_LIMIT;
	k->tcp_data_split = zc->split ? ETHTOOL_TCP_DATA_SPLIT_ENABLED :
					ETHTOOL_TCP_DATA_SPLIT_DISABLED;
	k->hds_thresh = zc->thresh;
	k->hds_thresh_max = HEADERS;
}

static int zc_set_ringparam(struct net_device *dev, struct ethtool_ringparam *p,
			    struct kernel_ethtool_ringparam *k, struct netlink_ext_ack *extack)
{
	struct zc_dev *zc = netdev_priv(dev);

	if (p->tx_pending != TX_LIMIT || p->rx_pending < 64) {
		NL_SET_ERR_MSG(extack, "a receive ring has 64 to 8192 entries, a transmit ring 256");
		return -EINVAL;
	}
	zc->split = k->tcp_data_split == ETHTOOL_TCP_DATA_SPLIT_ENABLED;
	zc->thresh = k->hds_thresh;
	p->rx_pending = roundup_pow_of_two(p->rx_pending);
	if (p->rx_pending == zc->ring)
		return 0;
	zc_stop(dev);
	zc->ring = p->rx_pending;
	return netif_running(dev) ? zc_open(dev) : 0;
}

static void zc_get_channels(struct net_device *dev, struct ethtool_channels *c)
{
	c->max_combined = dev->num_rx_queues;
	c->combined_count = dev->real_num_rx_queues;
}

static void zc_spread(struct zc_dev *zc, u32 n)
{
	int i;

	for (i = 0; i < INDIR; i++)
		zc->indir[0][i] = ethtool_rxfh_indir_default(i, n);
}

static int zc_set_channels(struct net_device *dev, struct ethtool_channels *c)
{
	int err;

	zc_stop(dev);
	err = netif_set_real_num_queues(dev, c->combined_count, c->combined_count);
	if (!err && !netif_is_rxfh_configured(dev))
		zc_spread(netdev_priv(dev), c->combined_count);
	return (netif_running(dev) ? zc_open(dev) : 0) ?: err;
}

/* ---- ethtool: steering ---- */

static u32 zc_rings(struct net_device *dev)
{
	return dev->real_num_rx_queues;
}

static u32 zc_indir_size(struct net_device *dev)
{
	return INDIR;
}

static int zc_get_rxfh(struct net_device *dev, struct ethtool_rxfh_param *p)
{
	struct zc_dev *zc = netdev_priv(dev);

	p->hfunc = ETH_RSS_HASH_TOP;
	if (p->indir)
		memcpy(p->indir, zc->indir[0], sizeof(zc->indir[0]));
	return 0;
}

static int zc_set_rxfh(struct net_device *dev, struct ethtool_rxfh_param *p,
		       struct netlink_ext_ack *extack)
{
	struct zc_dev *zc = netdev_priv(dev);

	if (p->indir)
		memcpy(zc->indir[0], p->indir, sizeof(zc->indir[0]));
	return 0;
}

/* A context without its own table uses the device's default spread. */
static int zc_modify_context(struct net_device *dev, struct ethtool_rxfh_context *ctx,
			     const struct ethtool_rxfh_param *p, struct netlink_ext_ack *extack)
{
	struct zc_dev *zc = netdev_priv(dev);

	if (p->indir)
		memcpy(zc->indir[p->rss_context], p->indir, sizeof(zc->indir[0]));
	return 0;
}

static int zc_create_context(struct net_device *dev, struct ethtool_rxfh_context *ctx,
			     const struct ethtool_rxfh_param *p, struct netlink_ext_ack *extack)
{
	struct zc_dev *zc = netdev_priv(dev);
	u32 *table = ethtool_rxfh_context_indir(ctx);
	int i;

	ctx->hfunc = ETH_RSS_HASH_TOP;
	for (i = 0; i < INDIR && !p->indir; i++)
		table[i] = ethtool_rxfh_indir_default(i, dev->real_num_rx_queues);
	memcpy(zc->indir[p->rss_context], p->indir ?: table, sizeof(zc->indir[0]));
	return 0;
}

static int zc_remove_context(struct net_device *dev, struct ethtool_rxfh_context *ctx,
			     u32 context, struct netlink_ext_ack *extack)
{
	return 0;
}

static int zc_get_rxnfc(struct net_device *dev, struct ethtool_rxnfc *c, u32 *locs)
{
	struct zc_dev *zc = netdev_priv(dev);
	u32 i, n = 0;

	switch (c->cmd) {
	case ETHTOOL_GRXCLSRLCNT:
		for (i = 0; i < MAX_RULES; i++)
			n += zc->rules[i].used;
		c->rule_cnt = n;
		c->data = MAX_RULES;
		return 0;
	case ETHTOOL_GRXCLSRULE:
		if (c->fs.location >= MAX_RULES || !zc->rules[c->fs.location].used)
			return -ENOENT;
		c->fs = zc->rules[c->fs.location].fs;
		c->rss_context = zc->rules[c->fs.location].context;
		return 0;
	case ETHTOOL_GRXCLSRLALL:
		for (i = 0; i < MAX_RULES; i++) {
			if (!zc->rules[i].used)
				continue;
			if (n == c->rule_cnt)
				return -EMSGSIZE;
			locs[n++] = i;
		}
		c->rule_cnt = n;
		c->data = MAX_RULES;
		return 0;
	}
	return -EOPNOTSUPP;
}

static int zc_set_rxnfc(struct net_device *dev, struct ethtool_rxnfc *c)
{
	struct zc_dev *zc = netdev_priv(dev);
	u32 at = c->fs.location;

	if (at >= MAX_RULES)
		return -EINVAL;
	switch (c->cmd) {
	case ETHTOOL_SRXCLSRLINS:
		switch (c->fs.flow_type & ~FLOW_RSS) {
		case TCP_V4_FLOW:
		case UDP_V4_FLOW:
			if (c->fs.m_u.tcp_ip4_spec.tos)
				return -EOPNOTSUPP;
			break;
		case TCP_V6_FLOW:
		case UDP_V6_FLOW:
			if (c->fs.m_u.tcp_ip6_spec.tclass)
				return -EOPNOTSUPP;
			break;
		default:
			return -EOPNOTSUPP;
		}
		if (c->fs.ring_cookie >= dev->real_num_rx_queues)
			return -EINVAL;
		smp_store_release(&zc->rules[at].used, false);
		synchronize_net();
		zc->rules[at].fs = c->fs;
		zc->rules[at].context = c->fs.flow_type & FLOW_RSS ? c->rss_context : 0;
		smp_store_release(&zc->rules[at].used, true);
		return 0;
	case ETHTOOL_SRXCLSRLDEL:
		if (!zc->rules[at].used)
			return -ENOENT;
		smp_store_release(&zc->rules[at].used, false);
		return 0;
	}
	return -EOPNOTSUPP;
}

static int zc_link_ksettings(struct net_device *dev, struct ethtool_link_ksettings *s)
{
	s->base.speed = SPEED_100000;
	s->base.duplex = DUPLEX_FULL;
	s->base.port = PORT_NONE;
	s->base.autoneg = AUTONEG_DISABLE;
	return 0;
}

static const struct ethtool_ops zc_ethtool_ops = {
	.op_needs_rtnl = ETHTOOL_OP_NEEDS_RTNL_GLINK | ETHTOOL_OP_NEEDS_RTNL_SCHANNELS |
			 ETHTOOL_OP_NEEDS_RTNL_SRINGPARAM,
	.cap_rss_rxnfc_adds = true,
	.supported_ring_params = ETHTOOL_RING_USE_TCP_DATA_SPLIT | ETHTOOL_RING_USE_HDS_THRS,
	.rxfh_indir_space = INDIR,
	.rxfh_max_num_contexts = MAX_CONTEXTS,
	.get_link = ethtool_op_get_link,
	.get_link_ksettings = zc_link_ksettings,
	.get_ts_info = ethtool_op_get_ts_info,
	.get_sset_count = zc_get_sset_count,
	.get_strings = zc_get_strings,
	.get_ethtool_stats = zc_get_ethtool_stats,
	.get_ringparam = zc_get_ringparam,
	.set_ringparam = zc_set_ringparam,
	.get_channels = zc_get_channels,
	.set_channels = zc_set_channels,
	.get_rx_ring_count = zc_rings,
	.get_rxfh_indir_size = zc_indir_size,
	.get_rxfh = zc_get_rxfh,
	.set_rxfh = zc_set_rxfh,
	.create_rxfh_context = zc_create_context,
	.modify_rxfh_context = zc_modify_context,
	.remove_rxfh_context = zc_remove_context,
	.get_rxnfc = zc_get_rxnfc,
	.set_rxnfc = zc_set_rxnfc,
};

/* ---- periodic faults ---- */

static void zc_flap(struct work_struct *work)
{
	static bool down;
	unsigned int i, period = READ_ONCE(flap);

	down = period && !down;
	for (i = 0; i < devices; i++) {
		struct zc_dev *zc = netdev_priv(ports[i]);

		if (!down) {
			zc_carrier(zc);
			continue;
		}
		netif_carrier_off(zc->dev);
		zc->flaps++;
	}
	zc_schedule(&zc_flap_work, down ? max(period / 10, 1) : period);
}

static void zc_reset(struct work_struct *work)
{
	u32 i, q;

	for (i = 0; i < devices; i++) {
		struct net_device *dev = ports[i];

		netdev_lock(dev);
		for (q = 0; q < dev->real_num_rx_queues && netif_running(dev); q++)
			netdev_rx_queue_restart(dev, q);
		netdev_unlock(dev);
	}
	zc_schedule(&zc_reset_work, READ_ONCE(reset));
}

/* ---- pairs of devices ---- */

/* Whether bus addresses are physical ones, on which zc_bus() relies. */
static int zc_check_dma(struct device *dev)
{
	struct page *page = alloc_page(GFP_KERNEL);
	dma_addr_t address;
	bool same;

	if (!page)
		return -ENOMEM;
	address = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_FROM_DEVICE);
	same = !dma_mapping_error(dev, address) && address == page_to_phys(page);
	if (!dma_mapping_error(dev, address))
		dma_unmap_page(dev, address, PAGE_SIZE, DMA_FROM_DEVICE);
	__free_page(page);
	if (!same)
		dev_err(dev, "bus addresses are not physical addresses (IOMMU, swiotlb=force)\n");
	return same ? 0 : -EOPNOTSUPP;
}

static int zc_probe(struct platform_device *pdev)
{
	struct net_device *dev;
	struct zc_dev *zc;
	u32 i;
	int err;

	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(64)) ?: zc_check_dma(&pdev->dev);
	if (err)
		return err;
	dev = alloc_etherdev_mqs(sizeof(*zc), queues, queues);
	if (!dev)
		return -ENOMEM;
	SET_NETDEV_DEV(dev, &pdev->dev);
	strscpy(dev->name, "zcnic%d");
	eth_hw_addr_random(dev);
	zc = netdev_priv(dev);
	zc->dev = dev;
	zc->dma = &pdev->dev;
	zc->ring = ring;
	for (i = 0; i < queues; i++) {
		struct zc_rxq *q = &zc->rx[i];

		q->dev = dev;
		q->cpu = cpumask_nth(i % num_online_cpus(), cpu_online_mask);
		skb_queue_head_init(&q->wire);
		INIT_CSD(&q->irq, zc_irq, q);
	}
	zc_spread(zc, queues);
	dev->netdev_ops = &zc_netdev_ops;
	dev->ethtool_ops = &zc_ethtool_ops;
	dev->queue_mgmt_ops = &zc_queue_ops;
	dev->stat_ops = &zc_stat_ops;
	dev->netmem_tx = NETMEM_TX_DMA;
	dev->hw_features = NETIF_F_SG | NETIF_F_HW_CSUM | NETIF_F_TSO | NETIF_F_TSO6 |
			   NETIF_F_RXHASH | NETIF_F_GRO_HW | NETIF_F_NTUPLE;
	dev->features = (dev->hw_features & ~(NETIF_F_GRO_HW | NETIF_F_NTUPLE)) |
			NETIF_F_HIGHDMA | NETIF_F_RXCSUM;
	dev->vlan_features = NETIF_F_SG | NETIF_F_HW_CSUM;
	dev->max_mtu = 9216;
	netif_carrier_off(dev);
	ports[pdev->id] = dev;
	platform_set_drvdata(pdev, dev);
	return 0;
}

static struct platform_driver zc_driver = {
	.probe = zc_probe,
	.driver.suppress_bind_attrs = true,
};

static struct platform_device *boards[2 * MAX_PAIRS];

static void zc_undo(void)
{
	unsigned int i;

	disable_delayed_work_sync(&zc_flap_work);
	disable_delayed_work_sync(&zc_reset_work);
	for (i = 0; i < devices; i++)
		if (ports[i] && ports[i]->reg_state == NETREG_REGISTERED)
			unregister_netdev(ports[i]);
	for (i = 0; i < devices; i++)
		if (ports[i])
			free_netdev(ports[i]);
	for (i = 0; i < devices; i++)
		if (!IS_ERR_OR_NULL(boards[i]))
			platform_device_unregister(boards[i]);
	platform_driver_unregister(&zc_driver);
}

static int __init zc_init(void)
{
	struct platform_device_info info = { .name = driver, .dma_mask = DMA_BIT_MASK(64) };
	unsigned int i;
	int err;

	pairs = clamp(pairs, 1, MAX_PAIRS);
	devices = 2 * pairs;
	queues = clamp(queues, 1, MAX_QUEUES);
	ring = roundup_pow_of_two(clamp(ring, 64, 8192));
	zc_driver.driver.name = driver;
	err = platform_driver_register(&zc_driver);
	if (err)
		return err;
	for (i = 0; i < devices; i++) {
		info.id = i;
		boards[i] = platform_device_register_full(&info);
		err = PTR_ERR_OR_ZERO(boards[i]);
		if (err)
			goto undo;
		err = -ENODEV;	/* probe is synchronous, and logs the reason */
		if (!ports[i])
			goto undo;
	}
	for (i = 0; i < devices; i++)
		((struct zc_dev *)netdev_priv(ports[i]))->peer = ports[i ^ 1];
	for (i = 0; i < devices; i++) {
		err = register_netdev(ports[i]);
		if (err)
			goto undo;
	}
	WRITE_ONCE(ready, true);
	zc_schedule(&zc_flap_work, flap);
	zc_schedule(&zc_reset_work, reset);
	return 0;
undo:
	zc_undo();
	return err;
}

static void __exit zc_exit(void)
{
	zc_undo();
}

module_init(zc_init);
module_exit(zc_exit);
MODULE_DESCRIPTION("Software NICs back to back, for memory providers");
MODULE_IMPORT_NS("NETDEV_INTERNAL");
MODULE_LICENSE("Dual MIT/GPL");
