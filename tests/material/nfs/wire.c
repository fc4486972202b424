/* Connections to the three programs, and waiting on them. */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wire.h"

#define PATIENCE_S 60

struct reply got;
struct rpc_context *nfs_rpc, *mount_rpc, *nlm_rpc;
char data_room[BYTES_MAX];
static bool waiting, connecting;

/* The three programs; a port of 0 is one that is not asked. */
static struct {
	struct rpc_context **link;
	int program, version, port;
} programs[] = {
	{&nfs_rpc, NFS_PROGRAM, NFS_V3, 0},
	{&mount_rpc, MOUNT_PROGRAM, MOUNT_V3, 0},
	{&nlm_rpc, NLM_PROGRAM, NLM_V4, 0},
};
static const char *host;
static struct {
	uint32_t uid, gid, count, groups[16];
} caller;

void
die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("conformance: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	fflush(stdout);
	exit(2);
}

void
forget(void)
{
	free(got.names);
	memset(&got, 0, sizeof got);
}

/* False if the connection broke. */
static bool
turn(struct rpc_context *link, time_t deadline)
{
	struct pollfd one = {.fd = rpc_get_fd(link), .events = (short)rpc_which_events(link)};

	if (poll(&one, 1, 1000) < 0)
		die("poll failed");
	if (rpc_service(link, one.revents) < 0)
		return false;
	if (time(NULL) > deadline)
		die("no reply within %d s", PATIENCE_S);
	return true;
}

static void reconnect(struct rpc_context *link);

int
reply_to(struct rpc_context *link, int queued)
{
	time_t deadline = time(NULL) + PATIENCE_S;

	if (queued != 0)
		die("libnfs does not send that: %s", rpc_get_error(link));
	waiting = true;
	while (waiting) {
		if (!turn(link, deadline)) {
			if (connecting)
				die("nobody answers at %s any more", host);
			reconnect(link);
			forget();
			got.status = RPC_REFUSED;
			snprintf(got.error, sizeof got.error, "and the connection closed");
			waiting = false;
		}
	}
	return got.status;
}

void
drain(struct rpc_context *link, int count)
{
	time_t deadline = time(NULL) + PATIENCE_S;

	while (rpc_queue_length(link) > count)
		if (!turn(link, deadline))
			die("the connection broke under many calls");
}

void
done_with(void)
{
	waiting = false;
}

bool
answered(int rpc_status, const void *data, int status)
{
	forget();
	done_with();
	if (rpc_status == RPC_STATUS_SUCCESS) {
		got.status = status;
		return true;
	}
	got.status = RPC_REFUSED;
	if (rpc_status == RPC_STATUS_ERROR && data != NULL)
		snprintf(got.error, sizeof got.error, "%s", (const char *)data);
	return false;
}

struct handle
handle_of(unsigned length, const char *bytes)
{
	struct handle handle = {.length = length};

	if (length > NFS3_FHSIZE)
		die("a handle of %u bytes", length);
	memcpy(handle.bytes, bytes, length);
	return handle;
}

static void
on_link(struct rpc_context *link, int status, void *data, void *unused)
{
	(void)link;
	(void)unused;
	answered(status, data, 0);
}

/* False if the program is not served there. */
static bool
connect_one(unsigned which)
{
	struct rpc_context *link = rpc_init_context();

	if (link == NULL)
		die("no context");
	*programs[which].link = link;
	connecting = true;
	rpc_set_auth(link, authunix_create("conformance", caller.uid, caller.gid, caller.count,
					   caller.groups));
	if (reply_to(link, rpc_connect_port_async(link, host, programs[which].port,
						  programs[which].program, programs[which].version,
						  on_link, NULL)) != 0) {
		fprintf(stderr, "conformance: program %d at port %d: %s\n",
			programs[which].program, programs[which].port, got.error);
		rpc_destroy_context(link);
		programs[which].port = 0;
	}
	connecting = false;
	return programs[which].port != 0;
}

static void
reconnect(struct rpc_context *link)
{
	for (unsigned each = 0; each < 3; each++) {
		if (*programs[each].link == link) {
			rpc_destroy_context(link);
			if (!connect_one(each))
				die("no connection any more");
		}
	}
}

bool
connect_all(const char *to, int nfs_port, int mount_port, int nlm_port)
{
	host = to;
	programs[0].port = nfs_port;
	programs[1].port = mount_port;
	programs[2].port = nlm_port;
	if (!connect_one(0) || !connect_one(1))
		die("nothing to check");
	return nlm_port != 0 && connect_one(2);
}

void
disconnect_all(void)
{
	for (unsigned each = 0; each < 3; each++)
		if (programs[each].port != 0)
			rpc_destroy_context(*programs[each].link);
	forget();
}

void
be(uint32_t uid, uint32_t gid, uint32_t count, uint32_t *groups)
{
	caller.uid = uid;
	caller.gid = gid;
	caller.count = count;
	memcpy(caller.groups, groups, count * sizeof *groups);
	for (unsigned each = 0; each < 3; each++)
		if (programs[each].port != 0)
			rpc_set_auth(*programs[each].link,
				     authunix_create("conformance", uid, gid, count, groups));
}
