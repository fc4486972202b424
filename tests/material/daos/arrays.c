/*
 * Arrays of cells: holes, open arrays in other processes, and files as arrays.
 *
 * arrays POOL CONTAINER
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <daos.h>
#include <daos_fs.h>

#include "check.h"

enum { CELLS = 40 * 1000, CHUNK = 1024 };

static daos_handle_t pool, container;
static const daos_handle_t none = {0};

static uint32_t
cell_of(uint64_t index)
{
	return (uint32_t)(index * 2654435761U + 1);
}

/* All cells are as they were written, but zeros where `hole` says so. */
static void
look(daos_handle_t array, bool (*hole)(uint64_t))
{
	static uint32_t back[CELLS];
	daos_range_t where = {0, CELLS};
	daos_array_iod_t iod = {1, &where, 0, 0};
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};

	d_iov_set(&iov, back, sizeof(back));
	CHECK_RC(daos_array_read(array, none, &iod, &list, NULL), 0);
	for (uint64_t index = 0; index < CELLS; index++)
		CHECK(back[index] == (hole(index) ? 0 : cell_of(index)));
}

static bool
nowhere(uint64_t index)
{
	(void)index;
	return false;
}

static bool
two_ranges(uint64_t index)
{
	return index == 7 || (index >= 900 && index < 900 + 9 * CHUNK + 3);
}

static bool
from_a_third(uint64_t index)
{
	return two_ranges(index) || index >= CELLS / 3;
}

static void
holes(daos_handle_t array)
{
	daos_range_t ranges[2] = {{7, 1}, {900, 9 * CHUNK + 3}};
	daos_array_iod_t iod = {2, ranges, 0, 0};
	daos_handle_t reader, bad = {.cookie = 1 << 30};
	daos_size_t size, cell, chunk;
	daos_obj_id_t other = {77, 0};
	daos_event_t event;
	bool done;

	look(array, nowhere);
	CHECK_RC(daos_array_punch(array, none, NULL, NULL), -DER_INVAL);
	iod.arr_rgs = NULL;
	CHECK_RC(daos_array_punch(array, none, &iod, NULL), -DER_INVAL);
	iod.arr_rgs = ranges;
	CHECK_RC(daos_array_punch(bad, none, &iod, NULL), -DER_NO_HDL);
	CHECK_RC(daos_array_punch(array, bad, &iod, NULL), -DER_NOSYS);
	look(array, nowhere);
	CHECK_RC(daos_array_punch(array, none, &iod, NULL), 0);
	look(array, two_ranges);
	CHECK_RC(daos_array_get_size(array, none, &size, NULL), 0);
	CHECK(size == CELLS);

	/* Beyond the end nothing is to be done, and an event goes on in the background. */
	ranges[0] = (daos_range_t){CELLS / 3, 1ULL << 40};
	ranges[1] = (daos_range_t){CELLS + 5, 0};
	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(daos_array_punch(array, none, &iod, &event), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && event.ev_error == 0);
	look(array, from_a_third);
	CHECK_RC(daos_array_get_size(array, none, &size, NULL), 0);
	CHECK(size == CELLS);
	ranges[0].rg_idx = ~0ULL;
	CHECK_RC(daos_array_punch(array, none, &iod, NULL), -DER_OVERFLOW);

	/* Nobody has written to this one: there is nothing to punch, and it is not made. */
	ranges[0] = (daos_range_t){0, 10};
	CHECK_RC(daos_obj_generate_oid(container, &other, DAOS_OT_ARRAY_BYTE, OC_S1, 0, 0), 0);
	CHECK_RC(daos_array_open_with_attr(container, other, none, DAOS_OO_RW, 4, 10, &reader, NULL), 0);
	CHECK_RC(daos_array_punch(reader, none, &iod, NULL), 0);
	CHECK_RC(daos_array_close(reader, NULL), 0);
	CHECK_RC(daos_array_open(container, other, none, DAOS_OO_RW, &cell, &chunk, &reader, NULL), -DER_NONEXIST);
	CHECK_RC(daos_array_open_with_attr(container, other, none, DAOS_OO_RO, 4, 10, &reader, NULL), 0);
	CHECK_RC(daos_array_punch(reader, none, &iod, NULL), -DER_NO_PERM);
	CHECK_RC(daos_array_close(reader, NULL), 0);
	CHECK_RC(daos_obj_open(container, other, DAOS_OO_RW, &reader, NULL), 0);
	CHECK_RC(daos_array_punch(reader, none, &iod, NULL), -DER_NO_HDL);
	CHECK_RC(daos_array_local2global(reader, &(d_iov_t){NULL, 0, 0}), -DER_NO_HDL);
	CHECK_RC(daos_obj_close(reader, NULL), 0);
}

static void
shared(daos_handle_t array, const char *name)
{
	char buffer[256], other_name[64];
	d_iov_t bytes = {NULL, 0, 0}, empty = {NULL, 0, 0};
	daos_range_t where = {0, 1};
	uint32_t value = 1;
	daos_array_iod_t iod = {1, &where, 0, 0};
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};
	daos_handle_t again, other;
	daos_size_t cell, chunk;

	d_iov_set(&iov, &value, sizeof(value));
	CHECK_RC(daos_array_local2global(array, NULL), -DER_INVAL);
	CHECK_RC(daos_array_local2global(array, &bytes), 0);
	CHECK(bytes.iov_buf_len > 0 && bytes.iov_buf_len <= sizeof(buffer));
	bytes.iov_buf = buffer;
	bytes.iov_buf_len--;
	CHECK_RC(daos_array_local2global(array, &bytes), -DER_TRUNC);
	CHECK_RC(daos_array_local2global(array, &bytes), 0);
	CHECK_RC(daos_array_global2local(container, bytes, 0, NULL), -DER_INVAL);
	CHECK_RC(daos_array_global2local(container, empty, 0, &again), -DER_INVAL);
	CHECK_RC(daos_array_global2local(pool, bytes, 0, &again), -DER_NO_HDL);
	CHECK_RC(daos_array_global2local(container, bytes, 0, &again), 0);
	CHECK_RC(daos_array_get_attr(again, &chunk, &cell), 0);
	CHECK(cell == sizeof(uint32_t) && chunk == CHUNK);
	look(again, from_a_third);
	CHECK_RC(daos_array_write(again, none, &iod, &list, NULL), 0);
	CHECK_RC(daos_array_close(again, NULL), 0);
	CHECK_RC(daos_array_global2local(container, bytes, DAOS_OO_RO, &again), 0);
	look(again, from_a_third);
	CHECK_RC(daos_array_write(again, none, &iod, &list, NULL), -DER_NO_PERM);
	/* How it was opened goes along. */
	CHECK_RC(daos_array_local2global(again, &bytes), 0);
	CHECK_RC(daos_array_close(again, NULL), 0);
	CHECK_RC(daos_array_global2local(container, bytes, 0, &again), 0);
	CHECK_RC(daos_array_write(again, none, &iod, &list, NULL), -DER_NO_PERM);
	CHECK_RC(daos_array_close(again, NULL), 0);

	snprintf(other_name, sizeof(other_name), "%s-2", name);
	CHECK_RC(daos_cont_create_with_label(pool, other_name, NULL, NULL, NULL), 0);
	CHECK_RC(daos_cont_open(pool, other_name, DAOS_COO_RW, &other, NULL, NULL), 0);
	CHECK_RC(daos_array_global2local(other, bytes, 0, &again), -DER_INVAL);
	CHECK_RC(daos_cont_close(other, NULL), 0);
	CHECK_RC(daos_cont_destroy(pool, other_name, 0, NULL), 0);
}

/* A file as an array of bytes: either way gives what the other wrote. */
static void
files(void)
{
	enum { BYTES = 300 * 1000 };
	static char data[BYTES], back[BYTES], buffer[256];
	daos_range_t where = {5, BYTES};
	daos_array_iod_t iod = {1, &where, 0, 0};
	daos_size_t size, cell, chunk;
	daos_handle_t array, same, other;
	daos_array_stbuf_t stat;
	d_iov_t iov, bytes;
	d_sg_list_t list = {1, 0, &iov};
	daos_event_t event;
	dfs_obj_t *file, *reader, *dir;
	dfs_t *dfs;
	bool done;

	for (int at = 0; at < BYTES; at++)
		data[at] = (char)(at * 7 + at / 253);
	CHECK_RC(dfs_mount(pool, container, O_RDWR, &dfs), 0);
	CHECK_RC(dfs_open(dfs, NULL, "file", S_IFREG | 0600, O_RDWR | O_CREAT, OC_SX, 65536, NULL, &file), 0);
	CHECK_RC(dfs_lookup(dfs, "/", O_RDWR, &dir, NULL, NULL), 0);
	CHECK_RC(dfs_get_file_oh(dir, &array), EISDIR);
	CHECK_RC(dfs_get_file_oh(NULL, &array), EINVAL);
	CHECK_RC(dfs_get_file_oh(file, NULL), EINVAL);
	CHECK_RC(dfs_get_file_oh(file, &array), 0);
	CHECK_RC(dfs_get_file_oh(file, &same), 0);
	CHECK(array.cookie == same.cookie);
	CHECK_RC(daos_array_get_attr(array, &chunk, &cell), 0);
	CHECK(cell == 1 && chunk == 65536);

	d_iov_set(&iov, data, BYTES);
	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(daos_array_write(array, none, &iod, &list, &event), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && event.ev_error == 0);
	d_iov_set(&iov, back, BYTES);
	CHECK_RC(dfs_read(dfs, file, &list, 5, &size, NULL), 0);
	CHECK(size == BYTES && memcmp(back, data, BYTES) == 0);
	CHECK_RC(daos_array_get_size(array, none, &size, NULL), 0);
	CHECK(size == BYTES + 5);
	memset(back, 1, BYTES);
	where.rg_idx = 10;
	CHECK_RC(daos_array_read(array, none, &iod, &list, NULL), 0);
	CHECK(memcmp(back, data + 5, BYTES - 5) == 0 && back[BYTES - 1] == 0);
	CHECK(iod.arr_nr_read == BYTES - 5 && iod.arr_nr_short_read == 5);
	where = (daos_range_t){1005, 200 * 1000};
	CHECK_RC(daos_array_punch(array, none, &iod, NULL), 0);
	CHECK_RC(dfs_read(dfs, file, &list, 5, &size, NULL), 0);
	CHECK(size == BYTES && memcmp(back, data, 1000) == 0);
	for (int at = 1000; at < BYTES; at++)
		CHECK(back[at] == (at < 201 * 1000 ? 0 : data[at]));
	CHECK_RC(daos_array_set_size(array, none, 99, NULL), 0);
	CHECK_RC(dfs_get_size(dfs, file, &size), 0);
	CHECK(size == 99);
	CHECK_RC(daos_array_stat(array, none, &stat, NULL), 0);
	CHECK(stat.st_size == 99);
	CHECK_RC(daos_array_destroy(array, none, NULL), -DER_NO_PERM);
	CHECK_RC(daos_obj_punch(array, none, 0, NULL), -DER_NO_HDL);

	/* One that another process makes of it; in a container of its own there is no such file. */
	d_iov_set(&bytes, buffer, sizeof(buffer));
	CHECK_RC(daos_array_local2global(array, &bytes), 0);
	CHECK_RC(daos_array_global2local(container, bytes, 0, &other), 0);
	where = (daos_range_t){0, 4};
	d_iov_set(&iov, data, 4);
	CHECK_RC(daos_array_write(other, none, &iod, &list, NULL), 0);
	CHECK_RC(daos_array_close(other, NULL), 0);
	CHECK_RC(daos_array_global2local(container, bytes, DAOS_OO_RO, &other), 0);
	CHECK_RC(daos_array_write(other, none, &iod, &list, NULL), -DER_NO_PERM);
	CHECK_RC(daos_array_set_size(other, none, 0, NULL), -DER_NO_PERM);
	CHECK_RC(daos_array_punch(other, none, &iod, NULL), -DER_NO_PERM);
	memset(back, 1, 4);
	d_iov_set(&iov, back, 4);
	CHECK_RC(daos_array_read(other, none, &iod, &list, NULL), 0);
	CHECK(memcmp(back, data, 4) == 0);
	CHECK_RC(daos_array_close(other, NULL), 0);

	/* It ends with the file; and a file that was opened for reading only is not written to. */
	CHECK_RC(dfs_dup(dfs, file, O_RDONLY, &reader), 0);
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(daos_array_get_size(array, none, &size, NULL), -DER_NO_HDL);
	CHECK_RC(dfs_get_file_oh(reader, &array), 0);
	CHECK_RC(daos_array_get_size(array, none, &size, NULL), 0);
	CHECK_RC(daos_array_write(array, none, &iod, &list, NULL), -DER_NO_PERM);
	CHECK_RC(dfs_remove(dfs, NULL, "file", false, NULL), 0);
	CHECK_RC(dfs_release(reader), 0);
	CHECK_RC(daos_array_global2local(container, bytes, 0, &other), -DER_STALE);
	CHECK_RC(dfs_release(dir), 0);
	CHECK_RC(dfs_umount(dfs), 0);
}

int
main(int argc, char **argv)
{
	static uint32_t cells[CELLS];
	daos_obj_id_t id = {5, 0};
	daos_range_t where = {0, CELLS};
	daos_array_iod_t iod = {1, &where, 0, 0};
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};
	daos_handle_t array;

	CHECK(argc == 3);
	CHECK_RC(daos_init(), 0);
	CHECK_RC(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK_RC(daos_cont_create_with_label(pool, argv[2], NULL, NULL, NULL), 0);
	CHECK_RC(daos_cont_open(pool, argv[2], DAOS_COO_RW, &container, NULL, NULL), 0);
	CHECK_RC(daos_obj_generate_oid(container, &id, DAOS_OT_ARRAY, OC_SX, 0, 0), 0);
	CHECK_RC(daos_array_create(container, id, none, sizeof(uint32_t), CHUNK, &array, NULL), 0);
	for (uint64_t index = 0; index < CELLS; index++)
		cells[index] = cell_of(index);
	d_iov_set(&iov, cells, sizeof(cells));
	CHECK_RC(daos_array_write(array, none, &iod, &list, NULL), 0);
	holes(array);
	shared(array, argv[2]);
	files();
	CHECK_RC(daos_array_close(array, NULL), 0);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(daos_fini(), 0);
	return 0;
}
