/* The procedures of NFS version 3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

/* The callback of a procedure: `res` is its result, `ok` what a success has, `failed` what a failure. */
#define ON(call, PROC, in_both, in_success)                                                       \
	static void on_##call(struct rpc_context *link, int rpc_status, void *data, void *unused) \
	{                                                                                         \
		PROC##3res *res = data;                                                           \
		bool refused = rpc_status != RPC_STATUS_SUCCESS;                                  \
                                                                                                  \
		(void)link;                                                                       \
		(void)unused;                                                                     \
		if (!answered(rpc_status, data, refused ? 0 : (int)res->status))                  \
			return;                                                                   \
		if (res->status == NFS3_OK) {                                                     \
			PROC##3resok *ok = &res->PROC##3res_u .resok;                              \
			in_both in_success                                                        \
		} else {                                                                          \
			PROC##3resfail *ok = &res->PROC##3res_u .resfail;                          \
			(void)ok;                                                                 \
			in_both                                                                   \
		}                                                                                 \
	}

typedef struct {
	int none;
} GETATTR3resfail;

static nfs_fh3
fh(const struct handle *handle)
{
	nfs_fh3 out;

	out.data.data_len = handle->length;
	out.data.data_val = (char *)handle->bytes;
	return out;
}

static diropargs3
in(const struct handle *dir, const char *name)
{
	diropargs3 out = {.dir = fh(dir), .name = (char *)name};

	return out;
}

static void
take_handle(const post_op_fh3 *from)
{
	got.has_handle = from->handle_follows;
	if (from->handle_follows) {
		const nfs_fh3 *handle = &from->post_op_fh3_u.handle;

		got.handle = handle_of(handle->data.data_len, handle->data.data_val);
	}
}

static void
take_bytes(const char *from, unsigned length)
{
	if (length > BYTES_MAX)
		die("%u bytes in one reply", length);
	memcpy(data_room, from, length);
	got.bytes = data_room;
	got.length = length;
}

static void
on_null(struct rpc_context *link, int status, void *data, void *unused)
{
	(void)link;
	(void)unused;
	answered(status, data, 0);
}

int
null_call(void)
{
	return reply_to(nfs_rpc, rpc_nfs3_null_async(nfs_rpc, on_null, NULL));
}

static void
on_getattr(struct rpc_context *link, int rpc_status, void *data, void *unused)
{
	GETATTR3res *res = data;

	(void)link;
	(void)unused;
	if (!answered(rpc_status, data, rpc_status == RPC_STATUS_SUCCESS ? (int)res->status : 0))
		return;
	if (res->status == NFS3_OK) {
		got.object.attributes_follow = 1;
		got.object.post_op_attr_u.attributes = res->GETATTR3res_u.resok.obj_attributes;
	}
}

int
getattr(const struct handle *object)
{
	GETATTR3args args = {.object = fh(object)};

	return reply_to(nfs_rpc, rpc_nfs3_getattr_async(nfs_rpc, on_getattr, &args, NULL));
}

ON(setattr, SETATTR, got.wcc = ok->obj_wcc;, )

int
setattr(const struct handle *object, sattr3 attributes, const nfstime3 *guard)
{
	SETATTR3args args = {.object = fh(object), .new_attributes = attributes};

	if (guard != NULL) {
		args.guard.check = 1;
		args.guard.sattrguard3_u.obj_ctime = *guard;
	}
	return reply_to(nfs_rpc, rpc_nfs3_setattr_async(nfs_rpc, on_setattr, &args, NULL));
}

ON(lookup, LOOKUP, got.directory = ok->dir_attributes;, {
	got.object = ok->obj_attributes;
	got.has_handle = true;
	got.handle = handle_of(ok->object.data.data_len, ok->object.data.data_val);
})

int
lookup(const struct handle *dir, const char *name)
{
	LOOKUP3args args = {.what = in(dir, name)};

	return reply_to(nfs_rpc, rpc_nfs3_lookup_async(nfs_rpc, on_lookup, &args, NULL));
}

ON(access, ACCESS, got.object = ok->obj_attributes;, got.access = ok->access;)

int
access_to(const struct handle *object, uint32_t bits)
{
	ACCESS3args args = {.object = fh(object), .access = bits};

	return reply_to(nfs_rpc, rpc_nfs3_access_async(nfs_rpc, on_access, &args, NULL));
}

ON(readlink, READLINK, got.object = ok->symlink_attributes;,
   take_bytes(ok->data, (unsigned)strlen(ok->data));)

int
readlink_of(const struct handle *link)
{
	READLINK3args args = {.symlink = fh(link)};

	return reply_to(nfs_rpc, rpc_nfs3_readlink_async(nfs_rpc, on_readlink, &args, NULL));
}

ON(read, READ, got.object = ok->file_attributes;, {
	got.count = ok->count;
	got.eof = ok->eof;
	take_bytes(ok->data.data_val, ok->data.data_len);
})

int
read_at(const struct handle *file, uint64_t offset, uint32_t count)
{
	READ3args args = {.file = fh(file), .offset = offset, .count = count};

	return reply_to(nfs_rpc, rpc_nfs3_read_async(nfs_rpc, on_read, &args, NULL));
}

ON(write, WRITE, got.wcc = ok->file_wcc;, {
	got.count = ok->count;
	got.committed = ok->committed;
	memcpy(got.verifier, ok->verf, sizeof got.verifier);
})

static WRITE3args
write_args(const struct handle *file, uint64_t offset, const void *bytes, uint32_t length,
	   stable_how stable)
{
	WRITE3args args = {.file = fh(file), .offset = offset, .count = length, .stable = stable};

	args.data.data_len = length;
	args.data.data_val = (char *)bytes;
	return args;
}

int
write_at(const struct handle *file, uint64_t offset, const void *bytes, uint32_t length,
	 stable_how stable)
{
	WRITE3args args = write_args(file, offset, bytes, length, stable);

	return reply_to(nfs_rpc, rpc_nfs3_write_async(nfs_rpc, on_write, &args, NULL));
}

int
write_counted(const struct handle *file, uint32_t count, const void *bytes, uint32_t length)
{
	WRITE3args args = write_args(file, 0, bytes, length, FILE_SYNC);

	args.count = count;
	return reply_to(nfs_rpc, rpc_nfs3_write_async(nfs_rpc, on_write, &args, NULL));
}

ON(commit, COMMIT, got.wcc = ok->file_wcc;, memcpy(got.verifier, ok->verf, sizeof got.verifier);)

int
commit(const struct handle *file, uint64_t offset, uint32_t count)
{
	COMMIT3args args = {.file = fh(file), .offset = offset, .count = count};

	return reply_to(nfs_rpc, rpc_nfs3_commit_async(nfs_rpc, on_commit, &args, NULL));
}

#define ON_MADE(call, PROC)                                                                       \
	ON(call, PROC, got.wcc = ok->dir_wcc;, {                                                  \
		got.object = ok->obj_attributes;                                                  \
		take_handle(&ok->obj);                                                            \
	})

ON_MADE(create, CREATE)
ON_MADE(mkdir, MKDIR)
ON_MADE(symlink, SYMLINK)
ON_MADE(mknod, MKNOD)

int
create(const struct handle *dir, const char *name, createmode3 mode, sattr3 attributes)
{
	CREATE3args args = {.where = in(dir, name), .how = {.mode = mode}};

	args.how.createhow3_u.obj_attributes = attributes;
	return reply_to(nfs_rpc, rpc_nfs3_create_async(nfs_rpc, on_create, &args, NULL));
}

int
create_exclusive(const struct handle *dir, const char *name, const char *verifier)
{
	CREATE3args args = {.where = in(dir, name), .how = {.mode = EXCLUSIVE}};

	memcpy(args.how.createhow3_u.verf, verifier, NFS3_CREATEVERFSIZE);
	return reply_to(nfs_rpc, rpc_nfs3_create_async(nfs_rpc, on_create, &args, NULL));
}

int
mkdir_in(const struct handle *dir, const char *name, sattr3 attributes)
{
	MKDIR3args args = {.where = in(dir, name), .attributes = attributes};

	return reply_to(nfs_rpc, rpc_nfs3_mkdir_async(nfs_rpc, on_mkdir, &args, NULL));
}

int
symlink_in(const struct handle *dir, const char *name, const char *text)
{
	SYMLINK3args args = {.where = in(dir, name), .symlink = {.symlink_data = (char *)text}};

	return reply_to(nfs_rpc, rpc_nfs3_symlink_async(nfs_rpc, on_symlink, &args, NULL));
}

int
mknod_in(const struct handle *dir, const char *name, ftype3 type, uint32_t major, uint32_t minor)
{
	MKNOD3args args = {.where = in(dir, name), .what = {.type = type}};
	sattr3 attributes = {.mode = {.set_it = 1, .set_mode3_u.mode = 0640}};

	if (type == NF3CHR || type == NF3BLK) {
		args.what.mknoddata3_u.chr_device.dev_attributes = attributes;
		args.what.mknoddata3_u.chr_device.spec.specdata1 = major;
		args.what.mknoddata3_u.chr_device.spec.specdata2 = minor;
	} else {
		args.what.mknoddata3_u.pipe_attributes = attributes;
	}
	return reply_to(nfs_rpc, rpc_nfs3_mknod_async(nfs_rpc, on_mknod, &args, NULL));
}

ON(remove, REMOVE, got.wcc = ok->dir_wcc;, )
ON(rmdir, RMDIR, got.wcc = ok->dir_wcc;, )

int
remove_from(const struct handle *dir, const char *name)
{
	REMOVE3args args = {.object = in(dir, name)};

	return reply_to(nfs_rpc, rpc_nfs3_remove_async(nfs_rpc, on_remove, &args, NULL));
}

int
rmdir_from(const struct handle *dir, const char *name)
{
	RMDIR3args args = {.object = in(dir, name)};

	return reply_to(nfs_rpc, rpc_nfs3_rmdir_async(nfs_rpc, on_rmdir, &args, NULL));
}

ON(rename, RENAME, got.wcc = ok->fromdir_wcc; got.to_wcc = ok->todir_wcc;, )

int
rename_to(const struct handle *from, const char *old, const struct handle *to, const char *name)
{
	RENAME3args args = {.from = in(from, old), .to = in(to, name)};

	return reply_to(nfs_rpc, rpc_nfs3_rename_async(nfs_rpc, on_rename, &args, NULL));
}

ON(link, LINK, got.object = ok->file_attributes; got.wcc = ok->linkdir_wcc;, )

int
link_to(const struct handle *file, const struct handle *dir, const char *name)
{
	LINK3args args = {.file = fh(file), .link = in(dir, name)};

	return reply_to(nfs_rpc, rpc_nfs3_link_async(nfs_rpc, on_link, &args, NULL));
}

/* A name of a page, with the bytes that it takes in the reply. */
static struct name *
add_name(const char *text, uint64_t fileid, uint64_t cookie)
{
	static const unsigned STEP = 256;
	struct name *each;

	if (got.name_count % STEP == 0) {
		got.names = realloc(got.names, (got.name_count + STEP) * sizeof *got.names);
		if (got.names == NULL)
			die("no memory");
	}
	each = &got.names[got.name_count++];
	memset(each, 0, sizeof *each);
	if (strlen(text) > NAME_MAX_BYTES)
		die("a name of %zu bytes", strlen(text));
	strcpy(each->name, text);
	each->fileid = fileid;
	each->cookie = cookie;
	got.page_bytes += 4 + 8 + 4 + ((unsigned)strlen(text) + 3) / 4 * 4 + 8;
	return each;
}

static unsigned
attribute_bytes(const post_op_attr *attributes)
{
	return 4 + (attributes->attributes_follow ? 84 : 0);
}

ON(readdir, READDIR, got.object = ok->dir_attributes;, {
	got.page_bytes = attribute_bytes(&got.object) + 8 + 4 + 4;
	for (const entry3 *each = ok->reply.entries; each != NULL; each = each->nextentry)
		add_name(each->name, each->fileid, each->cookie);
	got.eof = ok->reply.eof;
	memcpy(got.verifier, ok->cookieverf, sizeof got.verifier);
})

int
readdir_of(const struct handle *dir, uint64_t cookie, const char *verifier, uint32_t count)
{
	READDIR3args args = {.dir = fh(dir), .cookie = cookie, .count = count};

	memcpy(args.cookieverf, verifier, sizeof args.cookieverf);
	return reply_to(nfs_rpc, rpc_nfs3_readdir_async(nfs_rpc, on_readdir, &args, NULL));
}

static void
add_name_plus(const entryplus3 *from)
{
	struct name *each = add_name(from->name, from->fileid, from->cookie);

	each->attributes = from->name_attributes;
	each->has_handle = from->name_handle.handle_follows;
	got.page_bytes += attribute_bytes(&each->attributes) + 4;
	if (each->has_handle) {
		const nfs_fh3 *handle = &from->name_handle.post_op_fh3_u.handle;

		each->handle = handle_of(handle->data.data_len, handle->data.data_val);
		got.page_bytes += 4 + (each->handle.length + 3) / 4 * 4;
	}
}

ON(readdirplus, READDIRPLUS, got.object = ok->dir_attributes;, {
	got.page_bytes = attribute_bytes(&got.object) + 8 + 4 + 4;
	for (const entryplus3 *each = ok->reply.entries; each != NULL; each = each->nextentry)
		add_name_plus(each);
	got.eof = ok->reply.eof;
	memcpy(got.verifier, ok->cookieverf, sizeof got.verifier);
})

int
readdirplus_of(const struct handle *dir, uint64_t cookie, const char *verifier, uint32_t dir_count,
	       uint32_t max_count)
{
	READDIRPLUS3args args = {.dir = fh(dir), .cookie = cookie, .dircount = dir_count,
				 .maxcount = max_count};

	memcpy(args.cookieverf, verifier, sizeof args.cookieverf);
	return reply_to(nfs_rpc, rpc_nfs3_readdirplus_async(nfs_rpc, on_readdirplus, &args, NULL));
}

ON(fsstat, FSSTAT, got.object = ok->obj_attributes;, got.space = *ok;)
ON(fsinfo, FSINFO, got.object = ok->obj_attributes;, got.info = *ok;)
ON(pathconf, PATHCONF, got.object = ok->obj_attributes;, got.limits = *ok;)

int
fsstat(const struct handle *object)
{
	FSSTAT3args args = {.fsroot = fh(object)};

	return reply_to(nfs_rpc, rpc_nfs3_fsstat_async(nfs_rpc, on_fsstat, &args, NULL));
}

int
fsinfo(const struct handle *object)
{
	FSINFO3args args = {.fsroot = fh(object)};

	return reply_to(nfs_rpc, rpc_nfs3_fsinfo_async(nfs_rpc, on_fsinfo, &args, NULL));
}

int
pathconf_of(const struct handle *object)
{
	PATHCONF3args args = {.object = fh(object)};

	return reply_to(nfs_rpc, rpc_nfs3_pathconf_async(nfs_rpc, on_pathconf, &args, NULL));
}

#define IN_FLIGHT 32

static unsigned failures;

static void
on_one_of_many(struct rpc_context *link, int rpc_status, void *data, void *unused)
{
	(void)link;
	(void)unused;
	/* Every result begins with its status. */
	if (rpc_status != RPC_STATUS_SUCCESS || *(nfsstat3 *)data != NFS3_OK)
		failures++;
}

unsigned
create_many(const struct handle *dir, const char *prefix, unsigned from, unsigned to)
{
	failures = 0;
	for (unsigned number = from; number < to; number++) {
		char text[NAME_MAX_BYTES];
		CREATE3args args = {.where = in(dir, text), .how = {.mode = GUARDED}};

		snprintf(text, sizeof text, "%s%u", prefix, number);
		if (rpc_nfs3_create_async(nfs_rpc, on_one_of_many, &args, NULL) != 0)
			die("%s", rpc_get_error(nfs_rpc));
		drain(nfs_rpc, IN_FLIGHT);
	}
	drain(nfs_rpc, 0);
	return failures;
}

unsigned
remove_many(const struct handle *dir, const char *prefix, unsigned from, unsigned to)
{
	failures = 0;
	for (unsigned number = from; number < to; number++) {
		char text[NAME_MAX_BYTES];
		REMOVE3args args = {.object = in(dir, text)};

		snprintf(text, sizeof text, "%s%u", prefix, number);
		if (rpc_nfs3_remove_async(nfs_rpc, on_one_of_many, &args, NULL) != 0)
			die("%s", rpc_get_error(nfs_rpc));
		drain(nfs_rpc, IN_FLIGHT);
	}
	drain(nfs_rpc, 0);
	return failures;
}

unsigned
write_many(const struct handle *file, const char *bytes, uint32_t length, uint32_t block)
{
	failures = 0;
	for (uint32_t left = length; left > 0; left -= block) {
		WRITE3args args = write_args(file, left - block, bytes + left - block, block, UNSTABLE);

		if (rpc_nfs3_write_async(nfs_rpc, on_one_of_many, &args, NULL) != 0)
			die("%s", rpc_get_error(nfs_rpc));
		drain(nfs_rpc, IN_FLIGHT);
	}
	drain(nfs_rpc, 0);
	return failures;
}

struct block {
	char *into;
	uint32_t length;
};

static void
on_block(struct rpc_context *link, int rpc_status, void *data, void *user)
{
	READ3res *res = data;
	struct block *block = user;

	(void)link;
	if (rpc_status != RPC_STATUS_SUCCESS || res->status != NFS3_OK ||
	    res->READ3res_u.resok.data.data_len != block->length)
		failures++;
	else
		memcpy(block->into, res->READ3res_u.resok.data.data_val, block->length);
	free(block);
}

unsigned
read_many(const struct handle *file, char *bytes, uint32_t length, uint32_t size)
{
	failures = 0;
	for (uint32_t at = 0; at < length; at += size) {
		READ3args args = {.file = fh(file), .offset = at, .count = size};
		struct block *block = malloc(sizeof *block);

		if (block == NULL)
			die("no memory");
		*block = (struct block){.into = bytes + at, .length = size};
		if (rpc_nfs3_read_async(nfs_rpc, on_block, &args, block) != 0)
			die("%s", rpc_get_error(nfs_rpc));
		drain(nfs_rpc, IN_FLIGHT);
	}
	drain(nfs_rpc, 0);
	return failures;
}
