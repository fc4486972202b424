/*
 * One process through all calls, right and wrong: what they give, and with which error they end.
 *
 * calls POOL
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <gurt/common.h>
#include <daos.h>
#include <daos_fs.h>

#include "check.h"

static daos_handle_t pool, container;
static dfs_t *dfs;

static int
put(dfs_obj_t *file, const char *text, uint64_t offset)
{
	d_iov_t iov;
	d_sg_list_t list = {.sg_nr = 1, .sg_nr_out = 0, .sg_iovs = &iov};

	d_iov_set(&iov, (void *)text, strlen(text));
	return dfs_write(dfs, file, &list, offset, NULL);
}

static int
get(dfs_obj_t *file, char *data, size_t bytes, uint64_t offset, daos_size_t *got)
{
	d_iov_t iov;
	d_sg_list_t list = {.sg_nr = 1, .sg_nr_out = 0, .sg_iovs = &iov};

	d_iov_set(&iov, data, bytes);
	return dfs_read(dfs, file, &list, offset, got, NULL);
}

static void
pools_and_containers(const char *name)
{
	daos_handle_t other = DAOS_HDL_INVAL;
	daos_pool_info_t info = {.pi_bits = DPI_SPACE};
	daos_event_t event;
	bool done = false;
	uuid_t uuid;

	CHECK_RC(daos_pool_connect(name, NULL, DAOS_PC_RW, &pool, NULL, NULL), -DER_UNINIT);
	CHECK_RC(daos_init(), 0);
	CHECK_RC(daos_pool_connect("no-such-pool", NULL, DAOS_PC_RW, &pool, NULL, NULL),
		 -DER_NONEXIST);
	CHECK_RC(daos_pool_connect(NULL, NULL, DAOS_PC_RW, &pool, NULL, NULL), -DER_INVAL);
	CHECK_RC(daos_pool_connect(name, "daos_server", DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK(daos_handle_is_valid(pool));
	CHECK_RC(daos_pool_query(pool, NULL, &info, NULL, NULL), 0);
	CHECK(info.pi_ntargets == 4);
	CHECK(info.pi_space.ps_space.s_total[DAOS_MEDIA_SCM] +
		      info.pi_space.ps_space.s_total[DAOS_MEDIA_NVME] >= 1 << 20);
	CHECK_RC(daos_cont_open(pool, "calls", DAOS_COO_RW, &container, NULL, NULL), -DER_NONEXIST);
	CHECK_RC(daos_cont_destroy(pool, "calls", 1, NULL), -DER_NONEXIST);
	CHECK_RC(daos_cont_create_with_label(pool, "not/a name", NULL, NULL, NULL), -DER_INVAL);
	CHECK_RC(daos_cont_create_with_label(pool, "calls", NULL, &uuid, NULL), 0);
	CHECK_RC(daos_cont_create_with_label(pool, "calls", NULL, NULL, NULL), -DER_EXIST);
	CHECK_RC(dfs_cont_create_with_label(pool, "calls", NULL, NULL, NULL, NULL), EEXIST);
	CHECK_RC(daos_cont_open(other, "calls", DAOS_COO_RW, &container, NULL, NULL), -DER_NO_HDL);

	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(daos_cont_open(pool, "no", DAOS_COO_RW, &container, NULL, &event), 0);
	CHECK(event.ev_error == -DER_NONEXIST);
	CHECK_RC(daos_cont_open(pool, "calls", DAOS_COO_RW, &container, NULL, &event), 0);
	CHECK_RC(daos_event_test(&event, 0, &done), 0);
	CHECK(done && event.ev_error == 0);
	CHECK_RC(daos_event_fini(&event), 0);
	CHECK_RC(daos_pool_disconnect(container, NULL), -DER_NO_HDL);
	CHECK_RC(dfs_mount(pool, container, O_WRONLY, &dfs), EINVAL);
	CHECK_RC(dfs_mount(pool, pool, O_RDWR, &dfs), EINVAL);
	CHECK_RC(dfs_mount(pool, container, O_RDWR, &dfs), 0);
	CHECK(strcmp(d_errstr(-DER_NONEXIST), "DER_NONEXIST") == 0);
	CHECK(strcmp(d_errdesc(-DER_NONEXIST), "it is not there") == 0);
	CHECK(strcmp(d_errdesc(-99), "unknown error") == 0);
}

static void
bytes_of_handles(void)
{
	char small[4], garbage[200];
	daos_handle_t other;
	dfs_t *mount;
	d_iov_t bytes = {NULL, 0, 0};
	size_t length;

	CHECK_RC(daos_pool_local2global(pool, &bytes), 0);
	length = bytes.iov_buf_len;
	CHECK(length > sizeof(small));
	d_iov_set(&bytes, small, sizeof(small));
	CHECK_RC(daos_pool_local2global(pool, &bytes), -DER_TRUNC);
	CHECK(bytes.iov_buf_len == length);
	memset(garbage, 'x', sizeof(garbage));
	d_iov_set(&bytes, garbage, sizeof(garbage));
	CHECK_RC(daos_pool_global2local(bytes, &other), -DER_INVAL);
	CHECK_RC(daos_cont_local2global(container, &bytes), 0);
	CHECK_RC(daos_pool_global2local(bytes, &other), -DER_INVAL);
	CHECK_RC(dfs_global2local(pool, container, 0, bytes, &mount), EINVAL);
	CHECK_RC(daos_cont_global2local(pool, bytes, &other), 0);
	CHECK_RC(daos_cont_close(other, NULL), 0);
	CHECK_RC(daos_cont_close(other, NULL), -DER_NO_HDL);
}

static void
files(void)
{
	dfs_obj_t *file, *again;
	char data[64];
	daos_size_t got, size;
	struct stat stat;

	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR, 0, 0, NULL, &file), ENOENT);
	CHECK_RC(dfs_open(dfs, NULL, "a/b", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &file), EINVAL);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 1000, NULL, &file), EINVAL);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT, 77, 0, NULL, &file), EINVAL);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT, OC_S2, 4096, NULL, &file), 0);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT | O_EXCL, 0, 0, NULL, &again),
		 EEXIST);
	CHECK_RC(put(file, "hello", 0), 0);
	CHECK_RC(put(file, "world", 20000), 0);
	CHECK_RC(get(file, data, sizeof(data), 19998, &got), 0);
	CHECK(got == 7 && memcmp(data, "\0\0world", 7) == 0);
	CHECK_RC(get(file, data, sizeof(data), 20005, &got), 0);
	CHECK(got == 0);
	CHECK_RC(dfs_punch(dfs, file, 0, 3), 0);
	CHECK_RC(get(file, data, 5, 0, &got), 0);
	CHECK(got == 5 && memcmp(data, "\0\0\0lo", 5) == 0);
	CHECK_RC(dfs_punch(dfs, file, 10, DFS_MAX_FSIZE), 0);
	CHECK_RC(dfs_get_size(dfs, file, &size), 0);
	CHECK(size == 10);
	CHECK_RC(dfs_punch(dfs, file, 50, 1), 0);
	CHECK_RC(dfs_ostat(dfs, file, &stat), 0);
	CHECK(stat.st_size == 50 && stat.st_blksize == 4096 && stat.st_uid == geteuid());
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG, O_RDONLY, 0, 0, NULL, &again), 0);
	CHECK_RC(put(again, "x", 0), EBADF);
	CHECK_RC(dfs_release(again), 0);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG, O_RDWR | O_TRUNC, 0, 0, NULL, &again), 0);
	CHECK_RC(dfs_get_size(dfs, again, &size), 0);
	CHECK(size == 0);
	CHECK_RC(dfs_release(again), 0);
	/* A file that has lost its name lives on while it is open. */
	CHECK_RC(dfs_remove(dfs, NULL, "f", false, NULL), 0);
	CHECK_RC(put(file, "still", 0), 0);
	CHECK_RC(get(file, data, 5, 0, &got), 0);
	CHECK(got == 5);
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(dfs_release(NULL), EINVAL);
	CHECK_RC(dfs_stat(dfs, NULL, "f", &stat), ENOENT);
}

static void
names(void)
{
	dfs_obj_t *dir, *object;
	struct stat stat, root;
	mode_t mode;
	daos_obj_id_t id = {0, 0};

	CHECK_RC(dfs_mkdir(dfs, NULL, "d", 0750, OC_S1), 0);
	CHECK_RC(dfs_mkdir(dfs, NULL, "d", 0750, 0), EEXIST);
	CHECK_RC(dfs_lookup(dfs, "/d", O_RDWR, &dir, &mode, &stat), 0);
	CHECK(mode == (S_IFDIR | 0750) && stat.st_mode == mode);
	CHECK_RC(dfs_open(dfs, dir, "sub", S_IFDIR | 0700, O_RDWR | O_CREAT, 0, 0, NULL, &object), 0);
	CHECK_RC(put(object, "x", 0), EISDIR);
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_open(dfs, dir, "f", S_IFREG | 0644, O_RDWR | O_CREAT, 0, 0, NULL, &object), 0);
	CHECK_RC(dfs_mkdir(dfs, object, "x", 0700, 0), ENOTDIR);
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_open(dfs, dir, "l", S_IFLNK, O_RDWR | O_CREAT, 0, 0, "f", &object), 0);
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_stat(dfs, dir, "l", &stat), 0);
	CHECK(S_ISLNK(stat.st_mode) && stat.st_size == 1);
	CHECK_RC(dfs_lookup_rel(dfs, dir, "l", O_RDONLY, &object, &mode, NULL), 0);
	CHECK(S_ISREG(mode));
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_lookup(dfs, "/d/l", O_RDONLY | O_NOFOLLOW, &object, &mode, NULL), 0);
	CHECK(S_ISLNK(mode));
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_lookup(dfs, "d", O_RDONLY, &object, NULL, NULL), EINVAL);
	CHECK_RC(dfs_access(dfs, dir, "f", F_OK), 0);
	CHECK_RC(dfs_access(dfs, dir, "g", F_OK), ENOENT);
	CHECK_RC(dfs_access(dfs, dir, NULL, R_OK | W_OK | X_OK), 0);
	CHECK_RC(dfs_chmod(dfs, dir, "f", 0400), 0);
	CHECK_RC(dfs_access(dfs, dir, "f", X_OK), EACCES);
	CHECK_RC(dfs_stat(dfs, dir, "f", &stat), 0);
	CHECK(stat.st_mode == (S_IFREG | 0400));
	CHECK_RC(dfs_stat(dfs, NULL, NULL, &root), 0);
	CHECK_RC(dfs_stat(dfs, NULL, "/", &stat), 0);
	CHECK(S_ISDIR(stat.st_mode) && stat.st_ino == root.st_ino);
	CHECK_RC(dfs_move(dfs, dir, "f", NULL, "g", NULL), 0);
	CHECK_RC(dfs_move(dfs, dir, "f", NULL, "g", NULL), ENOENT);
	CHECK_RC(dfs_remove(dfs, NULL, "g", false, &id), 0);
	CHECK(id.lo != 0);
	CHECK_RC(dfs_remove(dfs, NULL, "d", false, NULL), ENOTEMPTY);
	CHECK_RC(dfs_remove(dfs, dir, "sub", false, NULL), 0);
	CHECK_RC(dfs_remove(dfs, NULL, "d", true, NULL), 0);
	CHECK_RC(dfs_open(dfs, dir, "late", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &object), ENOENT);
	CHECK_RC(dfs_release(dir), 0);
}

static void
listing(void)
{
	enum { FILES = 300, AT_ONCE = 7 };
	dfs_obj_t *dir, *file;
	struct dirent entries[AT_ONCE];
	daos_anchor_t anchor;
	bool seen[FILES] = {false};
	int found = 0;
	char name[32];

	CHECK_RC(dfs_mkdir(dfs, NULL, "many", 0755, 0), 0);
	CHECK_RC(dfs_lookup(dfs, "/many", O_RDWR, &dir, NULL, NULL), 0);
	for (int number = 0; number < FILES; number++) {
		snprintf(name, sizeof(name), "n%d", number);
		CHECK_RC(dfs_open(dfs, dir, name, S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &file), 0);
		CHECK_RC(dfs_release(file), 0);
	}
	daos_anchor_set_zero(&anchor);
	while (!daos_anchor_is_eof(&anchor)) {
		uint32_t count = AT_ONCE;
		CHECK_RC(dfs_readdir(dfs, dir, &anchor, &count, entries), 0);
		CHECK(count <= AT_ONCE);
		for (uint32_t index = 0; index < count; index++) {
			int number = atoi(entries[index].d_name + 1);
			CHECK(entries[index].d_name[0] == 'n' && number >= 0 && number < FILES);
			CHECK(entries[index].d_type == DT_REG && !seen[number]);
			seen[number] = true;
			found++;
		}
	}
	CHECK(found == FILES);
	daos_anchor_set_zero(&anchor);
	found = 0;
	while (!daos_anchor_is_eof(&anchor)) {
		struct stat stats[AT_ONCE], wanted;
		uint32_t count = AT_ONCE;

		CHECK_RC(dfs_readdirplus(dfs, dir, &anchor, &count, entries, stats), 0);
		for (uint32_t index = 0; index < count; index++) {
			CHECK_RC(dfs_stat(dfs, dir, entries[index].d_name, &wanted), 0);
			CHECK(stats[index].st_ino == wanted.st_ino && stats[index].st_mode == wanted.st_mode);
			found++;
		}
	}
	CHECK(found == FILES);
	CHECK_RC(dfs_readdirplus(dfs, dir, &anchor, &(uint32_t){1}, entries, NULL), EINVAL);
	CHECK_RC(dfs_release(dir), 0);
	CHECK_RC(dfs_remove(dfs, NULL, "many", true, NULL), 0);
}

static void
prefixes_and_reading_only(void)
{
	dfs_t *reader;
	dfs_obj_t *object;
	d_iov_t bytes = {NULL, 0, 0};
	char buffer[512];
	dfs_t *sent;

	CHECK_RC(dfs_set_prefix(dfs, "relative"), EINVAL);
	CHECK_RC(dfs_set_prefix(dfs, "/mnt/pool/"), 0);
	CHECK_RC(dfs_lookup(dfs, "/mnt/pool", O_RDWR, &object, NULL, NULL), 0);
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_lookup(dfs, "/mnt/pool/x", O_RDWR, &object, NULL, NULL), ENOENT);
	CHECK_RC(dfs_lookup(dfs, "/mnt/pools", O_RDWR, &object, NULL, NULL), EINVAL);
	CHECK_RC(dfs_lookup(dfs, "/", O_RDWR, &object, NULL, NULL), EINVAL);
	d_iov_set(&bytes, buffer, sizeof(buffer));
	CHECK_RC(dfs_local2global(dfs, &bytes), 0);
	CHECK_RC(dfs_global2local(pool, container, 0, bytes, &sent), 0);
	CHECK_RC(dfs_lookup(sent, "/mnt/pool", O_RDWR, &object, NULL, NULL), 0);
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_umount(sent), 0);
	CHECK_RC(dfs_set_prefix(dfs, NULL), 0);

	CHECK_RC(dfs_mount(pool, container, O_RDONLY, &reader), 0);
	CHECK_RC(dfs_mkdir(reader, NULL, "no", 0700, 0), EROFS);
	CHECK_RC(dfs_open(reader, NULL, "no", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &object), EROFS);
	CHECK_RC(dfs_lookup(reader, "/", O_RDWR, &object, NULL, NULL), 0);
	CHECK_RC(dfs_release(object), 0);
	CHECK_RC(dfs_umount(reader), 0);
}

static void
containers_with_defaults(void)
{
	dfs_attr_t attr = {.da_chunk_size = 65536, .da_file_oclass_id = OC_S1};
	daos_handle_t handle;
	dfs_obj_t *file;
	struct stat stat;
	dfs_t *mount;

	CHECK_RC(dfs_cont_create_with_label(pool, "attributes", &attr, NULL, &handle, &mount), 0);
	CHECK_RC(dfs_open(mount, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &file), 0);
	CHECK_RC(dfs_ostat(mount, file, &stat), 0);
	CHECK(stat.st_blksize == 65536);
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(dfs_umount(mount), 0);
	CHECK_RC(daos_cont_close(handle, NULL), 0);
	CHECK_RC(daos_cont_destroy(pool, "attributes", 0, NULL), 0);
	CHECK_RC(daos_cont_open(pool, "attributes", DAOS_COO_RW, &handle, NULL, NULL), -DER_NONEXIST);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 2);
	pools_and_containers(argv[1]);
	bytes_of_handles();
	files();
	names();
	listing();
	prefixes_and_reading_only();
	containers_with_defaults();
	CHECK_RC(dfs_sync(dfs), 0);
	CHECK_RC(dfs_umount(dfs), 0);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_cont_destroy(pool, "calls", 1, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), -DER_NO_HDL);
	CHECK_RC(daos_fini(), 0);
	CHECK_RC(daos_fini(), -DER_UNINIT);
	return 0;
}
