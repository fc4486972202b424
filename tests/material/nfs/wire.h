/* What the calls of the three programs share: the connections, and waiting for a reply. */
#ifndef WIRE_H
#define WIRE_H

#include "client.h"

extern struct rpc_context *nfs_rpc, *mount_rpc, *nlm_rpc;
/* The memory that `got.bytes` and `got.names` are in. */
extern char data_room[BYTES_MAX];

/* Forgets the last reply. */
void forget(void);
/* Waits for the reply to the call just queued. A connection that breaks meanwhile counts as a refusal,
   and is made anew. */
int reply_to(struct rpc_context *link, int queued);
/* Begins the work of a callback: false if the RPC layer refused the call. */
bool answered(int rpc_status, const void *data, int status);
void done_with(void);
/* Waits until at most `count` calls are in flight. */
void drain(struct rpc_context *link, int count);
void die(const char *format, ...);
struct handle handle_of(unsigned length, const char *bytes);

#endif
