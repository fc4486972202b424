/* The procedures of MOUNT version 3 and of NLM version 4. */
#include <stdio.h>
#include <string.h>

#include "wire.h"

static const char COOKIE[] = "cookie\0\1\2";

static void
on_nothing(struct rpc_context *link, int status, void *data, void *unused)
{
	(void)link;
	(void)unused;
	answered(status, data, 0);
}

int
mount_null(void)
{
	return reply_to(mount_rpc, rpc_mount3_null_async(mount_rpc, on_nothing, NULL));
}

static void
on_mount(struct rpc_context *link, int status, void *data, void *unused)
{
	mountres3 *res = data;
	mountres3_ok *ok;

	(void)link;
	(void)unused;
	if (!answered(status, data, status == RPC_STATUS_SUCCESS ? (int)res->fhs_status : 0) ||
	    res->fhs_status != MNT3_OK)
		return;
	ok = &res->mountres3_u.mountinfo;
	got.has_handle = true;
	got.handle = handle_of(ok->fhandle.fhandle3_len, ok->fhandle.fhandle3_val);
	for (unsigned each = 0; each < ok->auth_flavors.auth_flavors_len && each < 16; each++)
		got.flavours[got.flavour_count++] = ok->auth_flavors.auth_flavors_val[each];
}

int
mount_path(const char *path)
{
	return reply_to(mount_rpc,
			rpc_mount3_mnt_async(mount_rpc, on_mount, (char *)path, NULL));
}

static void
take_path(const char *path, const char *host)
{
	if (got.path_count == 64)
		return;
	snprintf(got.paths[got.path_count], sizeof got.paths[0], "%s", path);
	snprintf(got.hosts[got.path_count], sizeof got.hosts[0], "%s", host);
	got.path_count++;
}

static void
on_dump(struct rpc_context *link, int status, void *data, void *unused)
{
	(void)link;
	(void)unused;
	if (!answered(status, data, 0))
		return;
	for (mountlist each = *(mountlist *)data; each != NULL; each = each->ml_next)
		take_path(each->ml_directory, each->ml_hostname);
}

int
mount_dump(void)
{
	return reply_to(mount_rpc, rpc_mount3_dump_async(mount_rpc, on_dump, NULL));
}

static void
on_exports(struct rpc_context *link, int status, void *data, void *unused)
{
	(void)link;
	(void)unused;
	if (!answered(status, data, 0))
		return;
	for (exports each = *(exports *)data; each != NULL; each = each->ex_next)
		take_path(each->ex_dir, each->ex_groups != NULL ? each->ex_groups->gr_name : "");
}

int
mount_exports(void)
{
	return reply_to(mount_rpc, rpc_mount3_export_async(mount_rpc, on_exports, NULL));
}

int
unmount_path(const char *path)
{
	return reply_to(mount_rpc,
			rpc_mount3_umnt_async(mount_rpc, on_nothing, (char *)path, NULL));
}

int
unmount_all(void)
{
	return reply_to(mount_rpc, rpc_mount3_umntall_async(mount_rpc, on_nothing, NULL));
}

int
nlm_null(void)
{
	return reply_to(nlm_rpc, rpc_nlm4_null_async(nlm_rpc, on_nothing, NULL));
}

static nlm_cookie
cookie(void)
{
	nlm_cookie out;

	out.data.data_len = sizeof COOKIE;
	out.data.data_val = (char *)COOKIE;
	return out;
}

static bool
is_ours(const nlm_cookie *cookie)
{
	return cookie->data.data_len == sizeof COOKIE &&
	       memcmp(cookie->data.data_val, COOKIE, sizeof COOKIE) == 0;
}

static nlm4_lock
lock_of(const struct range *range)
{
	nlm4_lock out = {
		.caller_name = (char *)range->host,
		.oh = (char *)range->owner,
		.svid = range->process,
		.l_offset = range->offset,
		.l_len = range->length,
	};

	out.fh.data.data_len = range->file->length;
	out.fh.data.data_val = (char *)range->file->bytes;
	return out;
}

static void
on_test(struct rpc_context *link, int status, void *data, void *unused)
{
	NLM4_TESTres *res = data;

	(void)link;
	(void)unused;
	if (!answered(status, data, status == RPC_STATUS_SUCCESS ? (int)res->reply.status : 0))
		return;
	got.cookie_is_ours = is_ours(&res->cookie);
	if (res->reply.status == NLM4_DENIED) {
		got.holder = res->reply.nlm4_testreply_u.lock.holder;
		snprintf(got.holder_name, sizeof got.holder_name, "%s", got.holder.oh);
		got.holder.oh = NULL;
	}
}

int
nlm_test(struct range range, bool exclusive)
{
	NLM4_TESTargs args = {.cookie = cookie(), .exclusive = exclusive, .lock = lock_of(&range)};

	return reply_to(nlm_rpc, rpc_nlm4_test_async(nlm_rpc, on_test, &args, NULL));
}

/* NLM4_LOCKres, NLM4_CANCres and NLM4_UNLOCKres are one and the same. */
static void
on_lock(struct rpc_context *link, int status, void *data, void *unused)
{
	NLM4_LOCKres *res = data;

	(void)link;
	(void)unused;
	if (answered(status, data, status == RPC_STATUS_SUCCESS ? (int)res->status : 0))
		got.cookie_is_ours = is_ours(&res->cookie);
}

int
nlm_lock(struct range range, bool exclusive, bool block, bool reclaim)
{
	NLM4_LOCKargs args = {.cookie = cookie(), .block = block, .exclusive = exclusive,
			      .lock = lock_of(&range), .reclaim = reclaim};

	return reply_to(nlm_rpc, rpc_nlm4_lock_async(nlm_rpc, on_lock, &args, NULL));
}

int
nlm_cancel(struct range range, bool exclusive, bool block)
{
	NLM4_CANCargs args = {.cookie = cookie(), .block = block, .exclusive = exclusive,
			      .lock = lock_of(&range)};

	return reply_to(nlm_rpc, rpc_nlm4_cancel_async(nlm_rpc, on_lock, &args, NULL));
}

int
nlm_unlock(struct range range)
{
	NLM4_UNLOCKargs args = {.cookie = cookie(), .lock = lock_of(&range)};

	return reply_to(nlm_rpc, rpc_nlm4_unlock_async(nlm_rpc, on_lock, &args, NULL));
}
