/*
 * Directories: listing with a call for each name, from a name on and in parts, what new entries get; and what
 * a mount gives out of itself.
 *
 * directories POOL CONTAINER
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <daos.h>
#include <daos_fs.h>
#include <daos_fs_sys.h>

#include "check.h"

enum { NAMES = 300, NAME_BYTES = 4 };

static dfs_t *dfs;
static dfs_obj_t *dir, *file;

/* What a listing is to find, and where it is to stop. */
struct seen {
	bool names[NAMES];
	int count, stop_at;
	char last[8];
};

static int
see(dfs_t *mount, dfs_obj_t *object, const char name[], void *arg)
{
	struct seen *seen = arg;
	int number = atoi(name + 1);

	CHECK(mount == dfs && object == dir && name[0] == 'n' && strlen(name) == NAME_BYTES);
	CHECK(number >= 0 && number < NAMES && !seen->names[number]);
	seen->names[number] = true;
	strcpy(seen->last, name);
	return ++seen->count == seen->stop_at ? 1234 : 0;
}

static void
calls_for_each_name(void)
{
	struct seen seen = {.count = 0};
	daos_anchor_t anchor;
	uint32_t count;
	int calls = 0;

	/* As many names, and as many bytes, as were asked for. */
	for (daos_anchor_set_zero(&anchor); !daos_anchor_is_eof(&anchor); calls++) {
		bool by_bytes = calls % 2 == 0;

		count = by_bytes ? NAMES : 7;
		CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, by_bytes ? 11 * NAME_BYTES + 1 : 4096, see, &seen), 0);
		CHECK(count <= (by_bytes ? 11 : 7));
		CHECK(daos_anchor_is_eof(&anchor) || count == (by_bytes ? 11 : 7));
	}
	CHECK(seen.count == NAMES && calls > 2 * NAMES / (11 + 7) - 2);
	count = 5;
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 4096, see, &seen), 0);
	CHECK(count == 0);

	/* What is called may end it; it goes on behind that name. */
	seen = (struct seen){.stop_at = 10};
	daos_anchor_set_zero(&anchor);
	count = NAMES;
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 1 << 20, see, &seen), 1234);
	CHECK(count == 10 && seen.count == 10);
	count = NAMES;
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 1 << 20, see, &seen), 0);
	CHECK(count == NAMES - 10 && seen.count == NAMES);

	/* Nobody is called, nothing fits, nothing is asked for. */
	daos_anchor_set_zero(&anchor);
	count = NAMES;
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, NAME_BYTES - 1, see, &seen), E2BIG);
	CHECK(count == 0);
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 100, see, &seen), 0);
	count = NAMES;
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 0, see, &seen), 0);
	CHECK(count == 0 && !daos_anchor_is_eof(&anchor));
	count = NAMES;
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 1 << 20, NULL, NULL), 0);
	CHECK(count == NAMES && daos_anchor_is_eof(&anchor));
	CHECK_RC(dfs_iterate(dfs, dir, NULL, &count, 100, see, &seen), EINVAL);
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, NULL, 100, see, &seen), EINVAL);
	daos_anchor_set_zero(&anchor);
	count = 1;
	CHECK_RC(dfs_iterate(dfs, file, &anchor, &count, 100, see, &seen), ENOTDIR);
	count = 1;
	CHECK_RC(dfs_iterate(NULL, dir, &anchor, &count, 100, see, &seen), EINVAL);
}

static void
anchors(void)
{
	struct seen seen = {.count = 0}, rest;
	daos_anchor_t anchor, parts[3];
	uint32_t count = NAMES / 2;
	char first[8];

	daos_anchor_set_zero(&anchor);
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 1 << 20, see, &seen), 0);
	strcpy(first, seen.last);
	CHECK_RC(dfs_dir_anchor_set(dir, first, &anchor), 0);
	/* That name, and all those behind it. */
	rest = (struct seen){.count = 0};
	count = NAMES;
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 1 << 20, see, &rest), 0);
	CHECK(count == NAMES / 2 + 1 && rest.names[atoi(first + 1)]);
	for (int number = 0; number < NAMES; number++)
		CHECK(rest.names[number] != seen.names[number] || number == atoi(first + 1));
	CHECK_RC(dfs_dir_anchor_set(dir, "none", &anchor), ENOENT);
	CHECK_RC(dfs_dir_anchor_set(dir, "a/b", &anchor), EINVAL);
	CHECK_RC(dfs_dir_anchor_set(dir, NULL, &anchor), EINVAL);
	CHECK_RC(dfs_dir_anchor_set(dir, first, NULL), EINVAL);
	CHECK_RC(dfs_dir_anchor_set(file, first, &anchor), ENOTDIR);

	count = 0;
	CHECK_RC(dfs_obj_anchor_split(dir, &count, NULL), 0);
	CHECK(count == 1);
	memset(parts, 0xff, sizeof(parts));
	count = 3;
	CHECK_RC(dfs_obj_anchor_split(dir, &count, parts), 0);
	CHECK(count == 1 && daos_anchor_is_zero(&parts[0]));
	CHECK_RC(dfs_obj_anchor_split(file, &count, parts), ENOTDIR);
	CHECK_RC(dfs_obj_anchor_split(dir, NULL, parts), EINVAL);
	CHECK_RC(dfs_obj_anchor_set(dir, 1, &anchor), EINVAL);
	CHECK_RC(dfs_obj_anchor_set(dir, 0, NULL), EINVAL);
	CHECK_RC(dfs_obj_anchor_set(file, 0, &anchor), ENOTDIR);
	CHECK_RC(dfs_obj_anchor_set(dir, 0, &anchor), 0);
	count = NAMES;
	rest = (struct seen){.count = 0};
	CHECK_RC(dfs_iterate(dfs, dir, &anchor, &count, 1 << 20, see, &rest), 0);
	CHECK(count == NAMES);
}

/* Class and chunk size of a new file below a directory. */
static void
new_file(dfs_obj_t *below, const char *name, daos_oclass_id_t class, daos_size_t chunk_size)
{
	dfs_obj_info_t info;
	dfs_obj_t *made;

	CHECK_RC(dfs_open(dfs, below, name, S_IFREG | 0600, O_RDWR | O_CREAT | O_EXCL, 0, 0, NULL, &made), 0);
	CHECK_RC(dfs_obj_get_info(dfs, made, &info), 0);
	CHECK(info.doi_oclass_id == class && info.doi_chunk_size == chunk_size);
	CHECK_RC(dfs_release(made), 0);
}

static void
what_new_entries_get(daos_handle_t pool, daos_handle_t container)
{
	daos_oclass_id_t class = 0;
	dfs_obj_info_t info;
	dfs_obj_t *top, *below;
	dfs_attr_t defaults;
	dfs_t *reader;

	CHECK_RC(dfs_query(dfs, &defaults), 0);
	CHECK_RC(dfs_mkdir(dfs, NULL, "top", 0755, 0), 0);
	CHECK_RC(dfs_lookup(dfs, "/top", O_RDWR, &top, NULL, NULL), 0);
	CHECK_RC(dfs_obj_set_chunk_size(dfs, top, 0, 32768), 0);
	CHECK_RC(dfs_obj_set_oclass(dfs, top, 0, OC_S2), 0);
	CHECK_RC(dfs_obj_get_info(dfs, top, &info), 0);
	CHECK(info.doi_chunk_size == 32768 && info.doi_file_oclass_id == OC_S2 && info.doi_dir_oclass_id == OC_S2);
	new_file(top, "f", OC_S2, 32768);
	CHECK_RC(dfs_mkdir(dfs, top, "sub", 0755, 0), 0);
	CHECK_RC(dfs_lookup(dfs, "/top/sub", O_RDWR, &below, NULL, NULL), 0);
	CHECK_RC(dfs_obj_get_info(dfs, below, &info), 0);
	CHECK(info.doi_oclass_id == OC_S2);
	new_file(below, "f", OC_S2, 32768);
	CHECK_RC(dfs_release(below), 0);
	CHECK_RC(dfs_obj_set_chunk_size(dfs, top, 0, 0), 0);
	CHECK_RC(dfs_obj_set_oclass(dfs, top, 0, 0), 0);
	new_file(top, "g", defaults.da_file_oclass_id, defaults.da_chunk_size);

	CHECK_RC(dfs_obj_set_chunk_size(dfs, top, 0, 1000), EINVAL);
	CHECK_RC(dfs_obj_set_chunk_size(dfs, file, 0, 4096), ENOTDIR);
	CHECK_RC(dfs_obj_set_chunk_size(NULL, top, 0, 4096), EINVAL);
	CHECK_RC(dfs_obj_set_chunk_size(dfs, NULL, 0, 4096), EINVAL);
	CHECK_RC(dfs_obj_set_oclass(dfs, top, 0, 12345), EINVAL);
	CHECK_RC(dfs_obj_set_oclass(dfs, file, 0, OC_S1), ENOTDIR);
	CHECK_RC(dfs_obj_set_oclass(NULL, top, 0, OC_S1), EINVAL);
	CHECK_RC(dfs_release(top), 0);
	CHECK_RC(dfs_mount(pool, container, O_RDONLY, &reader), 0);
	CHECK_RC(dfs_lookup(reader, "/top", O_RDONLY, &top, NULL, NULL), 0);
	CHECK_RC(dfs_obj_set_oclass(reader, top, 0, OC_S1), EROFS);
	CHECK_RC(dfs_obj_set_chunk_size(reader, top, 0, 4096), EROFS);
	CHECK_RC(dfs_release(top), 0);
	CHECK_RC(dfs_umount(reader), 0);

	CHECK_RC(dfs_suggest_oclass(dfs, "file:single", &class), 0);
	CHECK(class == OC_S1);
	CHECK_RC(dfs_suggest_oclass(dfs, "directory:max", &class), 0);
	CHECK(class == OC_SX);
	CHECK_RC(dfs_suggest_oclass(dfs, "dir:some", &class), EINVAL);
	CHECK_RC(dfs_suggest_oclass(dfs, "file", &class), EINVAL);
	CHECK_RC(dfs_suggest_oclass(dfs, NULL, &class), EINVAL);
	CHECK_RC(dfs_suggest_oclass(dfs, "file:max", NULL), EINVAL);
	CHECK_RC(dfs_suggest_oclass(NULL, "file:max", &class), EINVAL);
}

static void
sizes_and_parents(void)
{
	char data[10] = "0123456789";
	daos_obj_id_t id, strange = {1, 2};
	daos_size_t size;
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};

	d_iov_set(&iov, data, sizeof(data));
	CHECK_RC(dfs_write(dfs, file, &list, 100000, NULL), 0);
	CHECK_RC(dfs_obj2id(file, &id), 0);
	CHECK_RC(dfs_get_size_by_oid(dfs, id, 0, &size), 0);
	CHECK(size == 100010);
	CHECK_RC(dfs_get_size_by_oid(dfs, id, 0, NULL), EINVAL);
	CHECK_RC(dfs_get_size_by_oid(NULL, id, 0, &size), EINVAL);
	CHECK_RC(dfs_get_size_by_oid(dfs, strange, 0, &size), EINVAL);
	CHECK_RC(dfs_obj2id(dir, &id), 0);
	CHECK_RC(dfs_get_size_by_oid(dfs, id, 0, &size), EISDIR);

	/* An open object stays the same wherever it goes. */
	CHECK_RC(dfs_move(dfs, NULL, "f", dir, "moved", NULL), 0);
	CHECK_RC(dfs_update_parent(file, dir, "moved"), 0);
	CHECK_RC(dfs_update_parent(file, dir, NULL), 0);
	CHECK_RC(dfs_get_size(dfs, file, &size), 0);
	CHECK(size == 100010);
	CHECK_RC(dfs_update_parent(file, dir, "a/b"), EINVAL);
	CHECK_RC(dfs_update_parent(NULL, dir, "x"), EINVAL);
	CHECK_RC(dfs_update_parent(file, NULL, "x"), EINVAL);
}

static void
lent(const char *name)
{
	daos_handle_t pool, container, opened;
	daos_cont_info_t info;
	daos_pool_info_t about = {.pi_bits = 0};

	CHECK_RC(dfs_pool_get(dfs, NULL), EINVAL);
	CHECK_RC(dfs_pool_get(NULL, &pool), EINVAL);
	CHECK_RC(dfs_cont_get(dfs, NULL), EINVAL);
	CHECK_RC(dfs_cont_get(NULL, &container), EINVAL);
	CHECK_RC(dfs_pool_get(dfs, &pool), 0);
	CHECK_RC(dfs_cont_get(dfs, &container), 0);
	CHECK_RC(daos_pool_query(pool, NULL, &about, NULL, NULL), 0);
	CHECK(about.pi_ntargets > 0);
	CHECK_RC(daos_cont_open(pool, name, DAOS_COO_RO, &opened, &info, NULL), 0);
	CHECK_RC(daos_cont_close(opened, NULL), 0);
	CHECK_RC(daos_cont_set_attr(container, 1, (const char *const[]){"a"}, (const void *const[]){"b"},
				    (const size_t[]){1}, NULL), 0);
	CHECK_RC(dfs_cont_put(dfs, pool), EINVAL);
	CHECK_RC(dfs_pool_put(dfs, container), EINVAL);
	CHECK_RC(dfs_cont_put(NULL, container), EINVAL);
	CHECK_RC(dfs_pool_put(NULL, pool), EINVAL);
	CHECK_RC(dfs_cont_put(dfs, container), 0);
	CHECK_RC(dfs_pool_put(dfs, pool), 0);
	CHECK_RC(dfs_cont_put(dfs, container), EINVAL);
	CHECK_RC(dfs_pool_put(dfs, pool), EINVAL);
}

static void
whole_mounts(void)
{
	static char buffer[16384];
	d_iov_t bytes = {NULL, 0, 0}, empty = {NULL, 0, 0};
	struct stat stat;
	dfs_sys_t *sys;
	dfs_t *again;

	CHECK_RC(dfs_local2global_all(NULL, &bytes), EINVAL);
	CHECK_RC(dfs_local2global_all(dfs, NULL), EINVAL);
	CHECK_RC(dfs_local2global_all(dfs, &bytes), 0);
	CHECK(bytes.iov_buf_len > 0 && bytes.iov_buf_len < sizeof(buffer));
	bytes.iov_buf = buffer;
	bytes.iov_buf_len--;
	CHECK_RC(dfs_local2global_all(dfs, &bytes), EOVERFLOW);
	CHECK_RC(dfs_local2global_all(dfs, &bytes), 0);
	CHECK_RC(dfs_global2local_all(0, empty, &again), EINVAL);
	CHECK_RC(dfs_global2local_all(0, bytes, NULL), EINVAL);
	CHECK_RC(dfs_global2local_all(0, bytes, &again), 0);
	CHECK_RC(dfs_mkdir(again, NULL, "whole", 0755, 0), 0);
	CHECK_RC(dfs_stat(dfs, NULL, "whole", &stat), 0);
	CHECK_RC(dfs_disconnect(again), 0);
	CHECK_RC(dfs_global2local_all(O_RDONLY | O_NOFOLLOW, bytes, &again), 0);
	CHECK_RC(dfs_mkdir(again, NULL, "no", 0755, 0), EROFS);
	CHECK_RC(dfs_disconnect(again), 0);

	CHECK_RC(dfs_sys_global2local_all(0, 0, bytes, NULL), EINVAL);
	CHECK_RC(dfs_sys_global2local_all(0, 0, empty, &sys), EINVAL);
	CHECK_RC(dfs_sys_global2local_all(0, DFS_SYS_NO_CACHE, bytes, &sys), 0);
	CHECK_RC(dfs_sys_set_prefix(sys, "/mnt"), 0);
	CHECK_RC(dfs_sys_stat(sys, "/mnt/whole", 0, &stat), 0);
	bytes.iov_buf_len = sizeof(buffer);
	CHECK_RC(dfs_sys_local2global_all(NULL, &bytes), EINVAL);
	CHECK_RC(dfs_sys_local2global_all(sys, &bytes), 0);
	CHECK_RC(dfs_sys_disconnect(sys), 0);
	CHECK_RC(dfs_sys_global2local_all(0, 0, bytes, &sys), 0);
	CHECK_RC(dfs_sys_stat(sys, "/mnt/whole", 0, &stat), 0);
	CHECK_RC(dfs_sys_disconnect(sys), 0);
}

int
main(int argc, char **argv)
{
	daos_handle_t pool, container;
	char name[NAME_BYTES + 8];

	CHECK(argc == 3);
	CHECK_RC(dfs_init(), 0);
	CHECK_RC(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK_RC(dfs_cont_create_with_label(pool, argv[2], NULL, NULL, &container, &dfs), 0);
	CHECK_RC(dfs_mkdir(dfs, NULL, "d", 0755, OC_SX), 0);
	CHECK_RC(dfs_lookup(dfs, "/d", O_RDWR, &dir, NULL, NULL), 0);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT, 0, 0, NULL, &file), 0);
	for (int number = 0; number < NAMES; number++) {
		snprintf(name, sizeof(name), "n%03d", number);
		CHECK_RC(dfs_mkdir(dfs, dir, name, 0700, OC_S1), 0);
	}
	calls_for_each_name();
	anchors();
	what_new_entries_get(pool, container);
	sizes_and_parents();
	lent(argv[2]);
	whole_mounts();
	CHECK_RC(dfs_release(dir), 0);
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(dfs_umount(dfs), 0);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(dfs_fini(), 0);
	return 0;
}
