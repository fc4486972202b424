/*
 * A parallel job as a benchmark does it: the first process connects, makes the container and mounts
 * it; the others get its handles as bytes, and know of the pool by nothing else. Then one file that
 * all share, and a file of each one's own. Leaves both, for others to look at.
 *
 * job POOL CONTAINER CLASS CHUNK_BYTES
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <gurt/common.h>
#include <gurt/hash.h>
#include <daos.h>
#include <daos_fs.h>

#include "check.h"
#include "crew.h"

#define PIECE (100 * 1000 + 7)
#define PIECES 12

static int rank, ranks;
static daos_handle_t pool, container;
static dfs_t *dfs;
static dfs_obj_t *shared;

enum what { POOL, CONTAINER, MOUNT, FILE_OF_ALL };

static int
to_bytes(enum what what, d_iov_t *bytes)
{
	switch (what) {
	case POOL:
		return daos_pool_local2global(pool, bytes);
	case CONTAINER:
		return daos_cont_local2global(container, bytes);
	case MOUNT:
		return dfs_local2global(dfs, bytes);
	default:
		return dfs_obj_local2global(dfs, shared, bytes);
	}
}

static int
of_bytes(enum what what, d_iov_t bytes)
{
	switch (what) {
	case POOL:
		return daos_pool_global2local(bytes, &pool);
	case CONTAINER:
		return daos_cont_global2local(pool, bytes, &container);
	case MOUNT:
		return dfs_global2local(pool, container, 0, bytes, &dfs);
	default:
		return dfs_obj_global2local(dfs, 0, bytes, &shared);
	}
}

static void
hand_round(enum what what)
{
	d_iov_t bytes = {NULL, 0, 0};
	uint64_t length;

	if (rank == 0)
		CHECK_RC(to_bytes(what, &bytes), 0);
	length = bytes.iov_buf_len;
	crew_broadcast(&length, sizeof(length));
	CHECK(length > 0);
	d_iov_set(&bytes, malloc(length), length);
	CHECK(bytes.iov_buf != NULL);
	if (rank == 0)
		CHECK_RC(to_bytes(what, &bytes), 0);
	crew_broadcast(bytes.iov_buf, length);
	if (rank != 0)
		CHECK_RC(of_bytes(what, bytes), 0);
	free(bytes.iov_buf);
}

/* The byte that stands at an offset of a file; the python side knows it too. */
static unsigned char
byte_at(uint64_t offset, int file)
{
	return (unsigned char)((offset * 131 + offset / 251 + (uint64_t)file * 17) & 0xff);
}

static void
write_piece(dfs_obj_t *file, uint64_t offset, int number)
{
	static unsigned char data[PIECE];
	d_iov_t iovs[2];
	d_sg_list_t list = {.sg_nr = 2, .sg_nr_out = 0, .sg_iovs = iovs};

	for (uint64_t at = 0; at < PIECE; at++)
		data[at] = byte_at(offset + at, number);
	d_iov_set(&iovs[0], data, 1000);
	d_iov_set(&iovs[1], data + 1000, PIECE - 1000);
	CHECK_RC(dfs_write(dfs, file, &list, offset, NULL), 0);
}

static void
read_piece(dfs_obj_t *file, uint64_t offset, int number)
{
	static unsigned char data[PIECE];
	d_iov_t iov;
	d_sg_list_t list = {.sg_nr = 1, .sg_nr_out = 0, .sg_iovs = &iov};
	daos_size_t got = 0;

	memset(data, 0xee, sizeof(data));
	d_iov_set(&iov, data, PIECE);
	CHECK_RC(dfs_read(dfs, file, &list, offset, &got, NULL), 0);
	CHECK(got == PIECE);
	for (uint64_t at = 0; at < PIECE; at++)
		CHECK(data[at] == byte_at(offset + at, number));
}

static void
begin(const char *pool_name, const char *container_name)
{
	daos_pool_info_t pool_info;
	daos_cont_info_t container_info;
	int rc;

	CHECK_RC(daos_init(), 0);
	if (rank == 0) {
		CHECK_RC(daos_pool_connect(pool_name, NULL, DAOS_PC_RW, &pool, &pool_info, NULL), 0);
		CHECK(pool_info.pi_ntargets > 0);
		rc = daos_cont_open(pool, container_name, DAOS_COO_RW, &container, &container_info,
				    NULL);
		CHECK(rc == -DER_NONEXIST);
		CHECK_RC(dfs_cont_create_with_label(pool, container_name, NULL, NULL, &container, NULL),
			 0);
		CHECK_RC(dfs_mount(pool, container, O_RDWR, &dfs), 0);
	} else {
		/* As on another host: no pool file, no secret. */
		setenv("XDG_STATE_HOME", "/nonexistent", 1);
		setenv("XDG_CONFIG_HOME", "/nonexistent", 1);
		setenv("HOME", "/nonexistent", 1);
		unsetenv("AZEKURA_POOL");
	}
	hand_round(POOL);
	hand_round(CONTAINER);
	hand_round(MOUNT);
}

static void
one_shared_file(daos_oclass_id_t class, daos_size_t chunk_bytes)
{
	int mine = 0;
	daos_size_t bytes;

	if (rank == 0)
		CHECK_RC(dfs_open(dfs, NULL, "shared", S_IFREG | 0644, O_RDWR | O_CREAT | O_EXCL, class,
				  chunk_bytes, NULL, &shared),
			 0);
	hand_round(FILE_OF_ALL);
	for (int piece = rank; piece < PIECES; piece += ranks)
		write_piece(shared, (uint64_t)piece * PIECE, 0);
	CHECK_RC(dfs_sync(dfs), 0);
	crew_barrier();
	for (int piece = (rank + 1) % ranks; piece < PIECES; piece += ranks, mine++)
		read_piece(shared, (uint64_t)piece * PIECE, 0);
	CHECK(mine > 0);
	CHECK_RC(dfs_get_size(dfs, shared, &bytes), 0);
	CHECK(bytes == (uint64_t)PIECES * PIECE);
	CHECK_RC(dfs_release(shared), 0);
}

static void
file_of_my_own(daos_oclass_id_t class, daos_size_t chunk_bytes)
{
	dfs_obj_t *dir, *file;
	struct stat stat;
	mode_t mode;
	char name[32], path[64];
	int next = (rank + 1) % ranks;

	if (rank == 0)
		CHECK_RC(dfs_mkdir(dfs, NULL, "own", 0755, 0), 0);
	crew_barrier();
	CHECK_RC(dfs_lookup(dfs, "/own", O_RDWR, &dir, &mode, NULL), 0);
	CHECK(S_ISDIR(mode));
	snprintf(name, sizeof(name), "file.%d", rank);
	CHECK_RC(dfs_open(dfs, dir, name, S_IFREG | 0640, O_RDWR | O_CREAT, class, chunk_bytes, NULL,
			  &file),
		 0);
	for (int piece = 0; piece < PIECES; piece++)
		write_piece(file, (uint64_t)piece * PIECE, rank);
	CHECK_RC(dfs_release(file), 0);
	crew_barrier();
	snprintf(path, sizeof(path), "/own/file.%d", next);
	CHECK_RC(dfs_lookup(dfs, path, O_RDONLY, &file, NULL, &stat), 0);
	CHECK(S_ISREG(stat.st_mode) && (stat.st_mode & 07777) == 0640);
	CHECK(stat.st_size == (off_t)PIECES * PIECE);
	for (int piece = 0; piece < PIECES; piece++)
		read_piece(file, (uint64_t)piece * PIECE, next);
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(dfs_release(dir), 0);
}

int
main(int argc, char **argv)
{
	daos_oclass_id_t class;
	daos_size_t chunk_bytes;

	CHECK(argc == 5);
	rank = crew_start(&argc, &argv, &ranks);
	class = daos_oclass_name2id(argv[3]);
	CHECK(class != OC_UNKNOWN);
	chunk_bytes = strtoull(argv[4], NULL, 10);
	begin(argv[1], argv[2]);
	one_shared_file(class, chunk_bytes);
	file_of_my_own(class, chunk_bytes);
	crew_barrier();
	CHECK_RC(dfs_umount(dfs), 0);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(daos_fini(), 0);
	return crew_end();
}
