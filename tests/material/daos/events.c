/*
 * Events: calls that go on in the background, what they give, and queues, families and errors of events.
 *
 * events POOL CONTAINER
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <daos.h>
#include <daos_fs.h>
#include <gurt/common.h>

#include "check.h"

enum { DEPTH = 8, BLOCK = 16 * 1024 + 5, BLOCKS = 200 };

/* A call with all that has to live until it is over, as I/O programs keep it. */
struct call {
	daos_event_t event;
	d_sg_list_t list;
	d_iov_t iov;
	daos_size_t got;
	int block;
	char data[BLOCK];
};

static daos_handle_t pool, container;
static dfs_t *dfs;
static dfs_obj_t *file;

static char
byte_of(int block, int at)
{
	return (char)(block * 37 + at * 11 + at / 251);
}

static void
launch(struct call *call, daos_handle_t queue, int block, bool writes)
{
	call->block = block;
	call->got = 0;
	call->list.sg_nr = 1;
	call->list.sg_nr_out = 0;
	call->list.sg_iovs = &call->iov;
	for (int at = 0; at < BLOCK; at++)
		call->data[at] = writes ? byte_of(block, at) : 0;
	d_iov_set(&call->iov, call->data, BLOCK);
	CHECK_RC(daos_event_init(&call->event, queue, NULL), 0);
	if (writes)
		CHECK_RC(dfs_write(dfs, file, &call->list, (uint64_t)block * BLOCK, &call->event), 0);
	else
		CHECK_RC(dfs_read(dfs, file, &call->list, (uint64_t)block * BLOCK, &call->got,
				  &call->event), 0);
}

/* All blocks, DEPTH in flight, the next call as soon as one is over. */
static void
stream(bool writes)
{
	static struct call calls[DEPTH];
	bool done[BLOCKS] = {false};
	daos_event_t *events[DEPTH];
	daos_handle_t queue;
	int next = 0, finished = 0;

	CHECK_RC(daos_eq_create(&queue), 0);
	for (; next < DEPTH; next++)
		launch(&calls[next], queue, next, writes);
	while (finished < BLOCKS) {
		int count = daos_eq_poll(queue, 1, DAOS_EQ_WAIT, DEPTH, events);

		CHECK(count > 0 && count <= DEPTH);
		for (int index = 0; index < count; index++) {
			struct call *call = container_of(events[index], struct call, event);

			CHECK(call->event.ev_error == 0 && !done[call->block]);
			done[call->block] = true;
			for (int at = 0; !writes && at < BLOCK; at++)
				CHECK(call->data[at] == byte_of(call->block, at));
			CHECK(writes || call->got == BLOCK);
			CHECK_RC(daos_event_fini(&call->event), 0);
			finished++;
			if (next < BLOCKS)
				launch(call, queue, next++, writes);
		}
	}
	CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, DEPTH, events), 0);
	CHECK_RC(daos_eq_poll(queue, 0, 1000, DEPTH, events), 0);
	CHECK_RC(daos_eq_query(queue, DAOS_EQR_ALL, 0, NULL), 0);
	CHECK_RC(daos_eq_destroy(queue, 0), 0);
	CHECK_RC(daos_eq_destroy(queue, 0), -DER_NONEXIST);
}

static void
queues(void)
{
	static struct call one, two;
	daos_event_t *events[2], stray = {.ev_error = 0};
	daos_handle_t queue, none = {.cookie = 1 << 30};
	bool done;

	CHECK_RC(daos_eq_create(NULL), -DER_INVAL);
	CHECK_RC(daos_eq_create(&queue), 0);
	CHECK_RC(daos_eq_poll(none, 0, 0, 2, events), -DER_NONEXIST);
	CHECK_RC(daos_eq_destroy(pool, DAOS_EQ_DESTROY_FORCE), -DER_NONEXIST);
	CHECK_RC(daos_pool_disconnect(queue, NULL), -DER_NO_HDL);
	CHECK_RC(daos_eq_poll(queue, 0, 0, 0, events), -DER_INVAL);
	CHECK_RC(daos_event_init(&one.event, none, NULL), -DER_NONEXIST);
	CHECK_RC(daos_event_fini(&stray), -DER_INVAL);
	CHECK_RC(dfs_write(dfs, file, &one.list, 0, &stray), EINVAL);

	/* What has completed stays in the queue until somebody asks. */
	launch(&one, queue, 0, true);
	CHECK_RC(daos_event_test(&one.event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && one.event.ev_error == 0);
	CHECK_RC(daos_eq_query(queue, DAOS_EQR_ALL, 0, NULL), 0);
	launch(&one, queue, 0, true);
	launch(&two, queue, 1, true);
	while (daos_eq_query(queue, DAOS_EQR_COMPLETED, 0, NULL) < 2)
		usleep(100);
	CHECK_RC(daos_eq_query(queue, DAOS_EQR_WAITING, 2, events), 0);
	CHECK_RC(daos_eq_query(queue, DAOS_EQR_ALL, 1, events), 1);
	CHECK_RC(daos_eq_destroy(queue, 0), -DER_BUSY);
	CHECK_RC(daos_event_fini(&one.event), 0);
	CHECK_RC(daos_eq_poll(queue, 0, 0, 2, events), 1);
	CHECK(events[0] == &two.event);

	/* A polled event is ready for the next call; errors come with the event. */
	CHECK_RC(dfs_write(dfs, file, NULL, 0, &two.event), 0);
	CHECK_RC(daos_eq_poll(queue, 0, DAOS_EQ_WAIT, 2, events), 1);
	CHECK(two.event.ev_error == EINVAL);
	CHECK_RC(daos_cont_open(pool, "no-such", DAOS_COO_RW, &none, NULL, &two.event), 0);
	CHECK_RC(daos_eq_poll(queue, 0, 0, 2, events), 1);
	CHECK(two.event.ev_error == -DER_NONEXIST);
	CHECK_RC(daos_event_abort(&two.event), -DER_NO_PERM);

	for (int turn = 0; turn < 20; turn++) {
		launch(&one, queue, 2, true);
		CHECK_RC(daos_event_fini(&two.event), 0);
		launch(&two, queue, 3, true);
		(void)daos_event_abort(&two.event);
		CHECK_RC(daos_event_test(&one.event, DAOS_EQ_WAIT, &done), 0);
		CHECK_RC(daos_event_test(&two.event, DAOS_EQ_WAIT, &done), 0);
		CHECK(done && one.event.ev_error == 0);
		CHECK(two.event.ev_error == 0 || two.event.ev_error == -DER_CANCELED);
	}

	/* By force: whatever runs is over or given up when the queue has gone. */
	launch(&one, queue, 2, true);
	launch(&two, queue, 3, true);
	CHECK_RC(daos_eq_destroy(queue, DAOS_EQ_DESTROY_FORCE), 0);
	CHECK(one.event.ev_error == 0 || one.event.ev_error == -DER_CANCELED);
}

static void
families(void)
{
	enum { CHILDREN = 3 };
	static struct call calls[CHILDREN];
	daos_event_t parent, grandchild, *events[CHILDREN + 1], *child = NULL;
	daos_handle_t queue;
	bool done;
	int count = 0;

	CHECK_RC(daos_eq_create(&queue), 0);
	CHECK_RC(daos_event_init(&parent, queue, NULL), 0);
	CHECK_RC(daos_event_parent_barrier(&parent), -DER_INVAL);
	for (int index = 0; index < CHILDREN; index++) {
		launch(&calls[index], DAOS_HDL_INVAL, index, true);
		CHECK_RC(daos_event_test(&calls[index].event, DAOS_EQ_WAIT, &done), 0);
		CHECK_RC(daos_event_init(&calls[index].event, DAOS_HDL_INVAL, &parent), 0);
	}
	CHECK_RC(daos_event_init(&grandchild, queue, &calls[0].event), -DER_NO_PERM);
	while ((child = daos_event_next(&parent, child)) != NULL)
		count++;
	CHECK(count == CHILDREN);
	for (int index = 0; index < CHILDREN; index++)
		CHECK_RC(dfs_write(dfs, file, index == 1 ? NULL : &calls[index].list, 0,
				   &calls[index].event), 0);
	CHECK_RC(daos_event_parent_barrier(&parent), 0);
	CHECK_RC(daos_event_test(&calls[0].event, 0, &done), -DER_NO_PERM);
	CHECK_RC(daos_eq_poll(queue, 0, DAOS_EQ_WAIT, CHILDREN + 1, events), 1);
	CHECK(events[0] == &parent && parent.ev_error == EINVAL);
	CHECK(calls[0].event.ev_error == 0 && calls[1].event.ev_error == EINVAL);
	CHECK_RC(daos_event_fini(&calls[1].event), 0);
	CHECK(daos_event_next(&parent, NULL) != &calls[1].event);
	CHECK_RC(daos_event_fini(&parent), 0);
	CHECK_RC(daos_event_fini(&calls[0].event), -DER_INVAL);
	CHECK_RC(daos_eq_destroy(queue, 0), 0);
}

static void
ranges(void)
{
	char memory[12] = "abcdefghijk", back[12] = "", all[64];
	d_iov_t iovs[2];
	d_sg_list_t list = {.sg_nr = 2, .sg_nr_out = 0, .sg_iovs = iovs};
	daos_range_t where[3] = {{1, 4}, {50, 6}, {40, 2}};
	dfs_iod_t iod = {3, where};
	daos_size_t got;
	daos_event_t event;
	bool done;

	CHECK_RC(dfs_punch(dfs, file, 0, DFS_MAX_FSIZE), 0);
	d_iov_set(&iovs[0], memory, 7);
	d_iov_set(&iovs[1], memory + 7, 5);
	CHECK_RC(dfs_writex(dfs, file, &iod, &list, NULL), 0);
	d_iov_set(&iovs[0], all, 60);
	list.sg_nr = 1;
	CHECK_RC(dfs_read(dfs, file, &list, 0, &got, NULL), 0);
	CHECK(got == 56 && memcmp(all, "\0abcd\0", 6) == 0);
	CHECK(memcmp(all + 50, "efghij", 6) == 0 && memcmp(all + 40, "k\0", 2) == 0);
	d_iov_set(&iovs[0], back, 5);
	d_iov_set(&iovs[1], back + 5, 7);
	list.sg_nr = 2;
	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(dfs_readx(dfs, file, &iod, &list, &got, &event), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && event.ev_error == 0 && got == 12 && memcmp(back, memory, 12) == 0);
	where[0].rg_len = 5;
	CHECK_RC(dfs_readx(dfs, file, &iod, &list, &got, NULL), EINVAL);
	CHECK_RC(dfs_writex(dfs, file, NULL, &list, NULL), EINVAL);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3);
	daos_handle_t early;

	CHECK_RC(daos_eq_create(&early), -DER_UNINIT);
	CHECK_RC(daos_init(), 0);
	CHECK_RC(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK_RC(dfs_cont_create_with_label(pool, argv[2], NULL, NULL, &container, &dfs), 0);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT, OC_SX, 65536, NULL, &file), 0);
	stream(true);
	stream(false);
	queues();
	families();
	ranges();
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(dfs_umount(dfs), 0);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(daos_fini(), 0);
	return 0;
}
