/*
 * NFS, MOUNT and NLM calls through libnfs' raw interface, one at a time: a call sends, waits for the
 * reply, leaves what the reply says in `got`, and gives its status.
 */
#ifndef CLIENT_H
#define CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/time.h>
#include <sys/types.h>

#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>
#include <nfsc/libnfs-raw-nlm.h>

#define BYTES_MAX (1 << 20)
#define NAME_MAX_BYTES 255
/* The call was refused by the RPC layer: no status of its own program. */
#define RPC_REFUSED (-1)

struct handle {
	unsigned length;
	char bytes[NFS3_FHSIZE];
};

struct name {
	char name[NAME_MAX_BYTES + 1];
	uint64_t fileid, cookie;
	post_op_attr attributes;
	bool has_handle;
	struct handle handle;
};

/* What the last reply said; a call leaves at zero what its reply has no place for. */
struct reply {
	int status;
	char error[200];		/* of RPC_REFUSED */
	post_op_attr object, directory; /* `directory` of LOOKUP */
	wcc_data wcc, to_wcc;		/* `to_wcc` of RENAME */
	bool has_handle;
	struct handle handle;
	uint32_t access, count, committed, eof;
	char verifier[8];
	char *bytes; /* READ and READLINK; valid until the next call */
	unsigned length;
	struct name *names; /* READDIR and READDIRPLUS; likewise */
	unsigned name_count, page_bytes;
	FSINFO3resok info;
	FSSTAT3resok space;
	PATHCONF3resok limits;
	int flavours[16];
	unsigned flavour_count;
	char paths[64][MNTPATHLEN + 1], hosts[64][MNTNAMLEN + 1];
	unsigned path_count;
	nlm4_holder holder;
	char holder_name[64];
	bool cookie_is_ours;
};

extern struct reply got;

/* Whether NLM is served; without the others there is nothing to do. */
bool connect_all(const char *host, int nfs_port, int mount_port, int nlm_port);
void disconnect_all(void);
/* The caller of what follows, on the NFS and NLM connections. */
void be(uint32_t uid, uint32_t gid, uint32_t count, uint32_t *groups);

int null_call(void);
int getattr(const struct handle *object);
int setattr(const struct handle *object, sattr3 attributes, const nfstime3 *guard);
int lookup(const struct handle *dir, const char *name);
int access_to(const struct handle *object, uint32_t bits);
int readlink_of(const struct handle *link);
int read_at(const struct handle *file, uint64_t offset, uint32_t count);
int write_at(const struct handle *file, uint64_t offset, const void *bytes, uint32_t length,
	     stable_how stable);
/* WRITE whose `count` is not the length of its data. */
int write_counted(const struct handle *file, uint32_t count, const void *bytes, uint32_t length);
int commit(const struct handle *file, uint64_t offset, uint32_t count);
int create(const struct handle *dir, const char *name, createmode3 mode, sattr3 attributes);
int create_exclusive(const struct handle *dir, const char *name, const char *verifier);
int mkdir_in(const struct handle *dir, const char *name, sattr3 attributes);
int symlink_in(const struct handle *dir, const char *name, const char *text);
int mknod_in(const struct handle *dir, const char *name, ftype3 type, uint32_t major, uint32_t minor);
int remove_from(const struct handle *dir, const char *name);
int rmdir_from(const struct handle *dir, const char *name);
int rename_to(const struct handle *from, const char *old, const struct handle *to, const char *name);
int link_to(const struct handle *file, const struct handle *dir, const char *name);
int readdir_of(const struct handle *dir, uint64_t cookie, const char *verifier, uint32_t count);
int readdirplus_of(const struct handle *dir, uint64_t cookie, const char *verifier,
		   uint32_t dir_count, uint32_t max_count);
int fsstat(const struct handle *object);
int fsinfo(const struct handle *object);
int pathconf_of(const struct handle *object);

/* Many calls in flight at once. Each gives how many were not answered with success. */
unsigned create_many(const struct handle *dir, const char *prefix, unsigned from, unsigned to);
unsigned remove_many(const struct handle *dir, const char *prefix, unsigned from, unsigned to);
/* Writes `length` bytes in blocks, the last one first. */
unsigned write_many(const struct handle *file, const char *bytes, uint32_t length, uint32_t block);
unsigned read_many(const struct handle *file, char *bytes, uint32_t length, uint32_t block);

int mount_null(void);
int mount_path(const char *path);
int mount_dump(void);
int mount_exports(void);
int unmount_path(const char *path);
int unmount_all(void);

/* A range of a file as one owner wants it. */
struct range {
	const struct handle *file;
	const char *host, *owner;
	uint32_t process;
	uint64_t offset, length;
};

int nlm_null(void);
int nlm_test(struct range range, bool exclusive);
int nlm_lock(struct range range, bool exclusive, bool block, bool reclaim);
int nlm_cancel(struct range range, bool exclusive, bool block);
int nlm_unlock(struct range range);

#endif
