/* Loses packets that come to a node. A program for the kernel's BPF machine, at the ingress of a network
 * device: the sender must not learn of the loss. node_faults.py compiles it for each loss, with these
 * definitions:
 *
 *   LOSS_PER_MILLION  how many of a million packets are lost, at random
 *   PEER              only those of this IPv4 address, as a number; 0: of any
 *   PORT              only TCP and UDP of this port at either end; 0: of any
 *   BESIDES           1: of any port but PORT
 *
 * A loss of any peer and port takes all packets, ARP too. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#define MILLION 1000000u

static unsigned int (*const random_number)(void) = (void*)BPF_FUNC_get_prandom_u32;

static __inline __attribute__((always_inline)) int is_of_port(const void* ports, const void* end) {
  const unsigned short* port = ports;
  if ((const void*)(port + 2) > end) return 0;
  const unsigned short wanted = __builtin_bswap16(PORT);
  return (port[0] == wanted || port[1] == wanted) != BESIDES;
}

/* Whether the loss is of such packets. */
static __inline __attribute__((always_inline)) int concerns(const struct __sk_buff* packet) {
  if (PEER == 0 && PORT == 0) return 1;
  const void* end = (const void*)(unsigned long)packet->data_end;
  const struct ethhdr* ethernet = (const void*)(unsigned long)packet->data;
  const struct iphdr* ip = (const void*)(ethernet + 1);
  if ((const void*)(ip + 1) > end || ethernet->h_proto != __builtin_bswap16(ETH_P_IP)) return 0;
  if (PEER != 0 && ip->saddr != __builtin_bswap32(PEER)) return 0;
  if (PORT == 0) return 1;
  if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP) return 0;
  if (ip->ihl != 5) return 0;
  return is_of_port(ip + 1, end);
}

__attribute__((section("classifier"), used)) int lose(const struct __sk_buff* packet) {
  if (!concerns(packet)) return TC_ACT_OK;
  return random_number() % MILLION < LOSS_PER_MILLION ? TC_ACT_SHOT : TC_ACT_OK;
}
