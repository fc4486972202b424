/*
 * Events: those who are called back, and parents with their children.
 *
 * families POOL CONTAINER
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <daos.h>
#include <daos_fs.h>

#include "check.h"

enum { BYTES = 200 * 1000, CHILDREN = 4 };

static dfs_t *dfs;
static dfs_obj_t *file;
static char memory[BYTES];
static d_iov_t iov = {memory, BYTES, BYTES};
static d_sg_list_t list = {1, 0, &iov};

/* What the callbacks were given, in the order in which they came. */
struct calls {
	int count;
	struct {
		int number, rc, error;
		daos_event_t *event;
	} each[8];
};

/* An argument of a callback, and what it is to give. */
struct note {
	struct calls *calls;
	int number, gives;
};

static int
note(void *arg, daos_event_t *event, int rc)
{
	struct note *note = arg;
	struct calls *calls = note->calls;
	bool flag = true;

	/* It has not completed yet, and the lock is not held: events may be asked for. */
	if (daos_event_test(event, DAOS_EQ_NOWAIT, &flag) == 0)
		CHECK(!flag);
	CHECK_RC(daos_event_fini(event), -DER_BUSY);
	calls->each[calls->count].number = note->number;
	calls->each[calls->count].rc = rc;
	calls->each[calls->count].error = event->ev_error;
	calls->each[calls->count].event = event;
	calls->count++;
	return note->gives;
}

static void
callbacks(daos_handle_t pool)
{
	struct calls calls = {.count = 0};
	struct note one = {&calls, 1, 0}, two = {&calls, 2, -7}, three = {&calls, 3, -8};
	daos_event_t event, stray = {.ev_error = 0}, *polled;
	daos_handle_t queue, none;
	bool done;

	CHECK_RC(daos_eq_create(&queue), 0);
	CHECK_RC(daos_event_init(&event, queue, NULL), 0);
	CHECK_RC(daos_event_register_comp_cb(NULL, note, &one), -DER_INVAL);
	CHECK_RC(daos_event_register_comp_cb(&stray, note, &one), -DER_INVAL);
	CHECK_RC(daos_event_register_comp_cb(&event, NULL, &one), -DER_INVAL);

	/* In order, with the result of the call; the first error of theirs is that of the event. */
	CHECK_RC(daos_event_register_comp_cb(&event, note, &one), 0);
	CHECK_RC(daos_event_register_comp_cb(&event, note, &two), 0);
	CHECK_RC(daos_event_register_comp_cb(&event, note, &three), 0);
	CHECK_RC(dfs_write(dfs, file, &list, 0, &event), 0);
	CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, 1, &polled), 1);
	CHECK(polled == &event && event.ev_error == -7 && calls.count == 3);
	for (int index = 0; index < 3; index++)
		CHECK(calls.each[index].number == index + 1 && calls.each[index].rc == 0 &&
		      calls.each[index].event == &event);

	/* Each is called once. */
	CHECK_RC(dfs_write(dfs, file, &list, 0, &event), 0);
	CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, 1, &polled), 1);
	CHECK(event.ev_error == 0 && calls.count == 3);

	/* The error of the call goes first; calls that do not go on in the background call back too. */
	CHECK_RC(daos_event_register_comp_cb(&event, note, &two), 0);
	CHECK_RC(daos_cont_open(pool, "no-such", DAOS_COO_RW, &none, NULL, &event), 0);
	CHECK(calls.count == 4 && calls.each[3].rc == -DER_NONEXIST);
	CHECK_RC(daos_event_register_comp_cb(&event, note, &one), -DER_NO_PERM);
	CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, 1, &polled), 1);
	CHECK(event.ev_error == -DER_NONEXIST);

	/* An event that ends without a call calls nobody, and so many are too many. */
	for (int count = 0; count < 64; count++)
		CHECK_RC(daos_event_register_comp_cb(&event, note, &one), 0);
	CHECK_RC(daos_event_register_comp_cb(&event, note, &one), -DER_BUSY);
	CHECK_RC(daos_event_fini(&event), 0);
	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(dfs_write(dfs, file, &list, 0, &event), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && event.ev_error == 0 && calls.count == 4);
	CHECK_RC(daos_event_fini(&event), 0);

	/* An event whose queue has gone. */
	CHECK_RC(daos_event_init(&event, queue, NULL), 0);
	CHECK_RC(daos_eq_destroy(queue, 0), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_NOWAIT, &done), -DER_NONEXIST);
	CHECK_RC(dfs_write(dfs, file, &list, 0, &event), ENOENT);
}

static void
barriers(void)
{
	struct calls calls = {.count = 0};
	struct note mine = {&calls, 1, 0}, childs = {&calls, 2, 0};
	daos_event_t parent, children[CHILDREN], late, *polled[2], *child = NULL;
	daos_handle_t queue;

	CHECK_RC(daos_eq_create(&queue), 0);
	CHECK_RC(daos_event_init(&parent, queue, NULL), 0);
	CHECK_RC(daos_event_parent_barrier(&parent), -DER_INVAL);
	for (int index = 0; index < CHILDREN; index++)
		CHECK_RC(daos_event_init(&children[index], DAOS_HDL_INVAL, &parent), 0);
	/* One after the other, and one that is not launched is taken out again. */
	CHECK_RC(daos_event_init(&late, DAOS_HDL_INVAL, &parent), 0);
	for (int index = 0; index < CHILDREN; index++)
		CHECK((child = daos_event_next(&parent, child)) == &children[index]);
	CHECK(daos_event_next(&parent, child) == &late);
	CHECK(daos_event_next(&parent, &late) == NULL);
	CHECK_RC(daos_event_register_comp_cb(&parent, note, &mine), 0);
	CHECK_RC(daos_event_register_comp_cb(&children[1], note, &childs), 0);
	for (int index = 0; index < CHILDREN; index++)
		CHECK_RC(dfs_write(dfs, file, &list, (uint64_t)index * BYTES, &children[index]), 0);
	CHECK_RC(daos_event_parent_barrier(&parent), -DER_NO_PERM);
	CHECK_RC(daos_event_fini(&late), 0);
	CHECK(daos_event_next(&parent, &children[CHILDREN - 1]) == NULL);
	CHECK_RC(daos_event_init(&late, DAOS_HDL_INVAL, &parent), 0);
	CHECK(daos_event_next(&parent, &children[CHILDREN - 1]) == &late);
	CHECK_RC(daos_event_fini(&late), 0);
	CHECK_RC(daos_event_parent_barrier(&parent), 0);
	CHECK_RC(daos_event_parent_barrier(&parent), -DER_NO_PERM);
	CHECK_RC(daos_event_init(&late, DAOS_HDL_INVAL, &parent), -DER_INVAL);
	CHECK_RC(dfs_write(dfs, file, &list, 0, &parent), EPERM);
	CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, 2, polled), 1);
	CHECK(polled[0] == &parent && parent.ev_error == 0);
	CHECK(calls.count == 2 && calls.each[0].number == 2 && calls.each[1].number == 1);
	CHECK_RC(daos_eq_query(queue, DAOS_EQR_ALL, 0, NULL), 0);
	for (int index = 0; index < CHILDREN; index++)
		CHECK(children[index].ev_error == 0);

	/* Children that have all completed before. */
	CHECK_RC(daos_event_parent_barrier(&parent), 0);
	CHECK_RC(daos_event_fini(&children[0]), -DER_INVAL);
	CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, 2, polled), 1);
	CHECK_RC(daos_event_fini(&children[0]), 0);
	CHECK(daos_event_next(&parent, NULL) == &children[1]);
	CHECK_RC(daos_event_fini(&parent), 0);
	CHECK_RC(daos_eq_destroy(queue, 0), 0);
}

/* A parent that a call was given: over with the last of its children, whichever is over first. */
static void
parents_with_calls(void)
{
	daos_event_t parent, children[CHILDREN], *polled[2];
	daos_handle_t queue;
	bool done;

	CHECK_RC(daos_eq_create(&queue), 0);
	for (int turn = 0; turn < 40; turn++) {
		bool queued = turn % 2 == 0, fails = turn % 3 == 0;
		d_sg_list_t little = list;
		d_iov_t few = {memory, 1, 1};

		little.sg_iovs = &few;
		CHECK_RC(daos_event_init(&parent, queued ? queue : DAOS_HDL_INVAL, NULL), 0);
		for (int index = 0; index < CHILDREN; index++) {
			daos_event_t *child = &children[index];

			CHECK_RC(daos_event_init(child, DAOS_HDL_INVAL, &parent), 0);
			CHECK_RC(dfs_write(dfs, file, fails && index == 1 ? NULL : &list,
					   (uint64_t)index * BYTES, child), 0);
		}
		CHECK_RC(dfs_write(dfs, file, &little, 0, &parent), 0);
		if (queued) {
			CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, 2, polled), 1);
			CHECK(polled[0] == &parent);
		} else {
			CHECK_RC(daos_event_test(&parent, DAOS_EQ_WAIT, &done), 0);
			CHECK(done);
		}
		CHECK(parent.ev_error == (fails ? EINVAL : 0));
		for (int index = 0; index < CHILDREN; index++)
			CHECK(children[index].ev_error == (fails && index == 1 ? EINVAL : 0));
		CHECK_RC(daos_event_fini(&parent), 0);
	}
	CHECK_RC(daos_eq_destroy(queue, 0), 0);
}

/* A child of a fork has the handles, and queues of its own. */
static void
after_a_fork(void)
{
	daos_handle_t queue, fresh;
	daos_event_t event, *polled;
	daos_size_t got;
	int status;
	pid_t child;

	CHECK_RC(daos_eq_create(&queue), 0);
	child = fork();
	if (child == 0) {
		CHECK_RC(daos_reinit(), 0);
		CHECK_RC(daos_eq_query(queue, DAOS_EQR_ALL, 0, NULL), -DER_NONEXIST);
		CHECK_RC(daos_eq_create(&fresh), 0);
		CHECK_RC(daos_event_init(&event, fresh, NULL), 0);
		memory[0] = 'c';
		CHECK_RC(dfs_write(dfs, file, &list, 0, &event), 0);
		CHECK_RC(daos_eq_poll(fresh, 1, DAOS_EQ_WAIT, 1, &polled), 1);
		CHECK(event.ev_error == 0);
		_exit(0);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
	CHECK_RC(daos_eq_query(queue, DAOS_EQR_ALL, 0, NULL), 0);
	CHECK_RC(daos_event_init(&event, queue, NULL), 0);
	CHECK_RC(dfs_read(dfs, file, &list, 0, &got, &event), 0);
	CHECK_RC(daos_eq_poll(queue, 1, DAOS_EQ_WAIT, 1, &polled), 1);
	CHECK(event.ev_error == 0 && got == BYTES && memory[0] == 'c');
	CHECK_RC(daos_eq_destroy(queue, 0), 0);
}

int
main(int argc, char **argv)
{
	daos_handle_t pool, container;

	CHECK(argc == 3);
	CHECK_RC(daos_reinit(), -DER_UNINIT);
	CHECK_RC(daos_init(), 0);
	CHECK_RC(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK_RC(dfs_cont_create_with_label(pool, argv[2], NULL, NULL, &container, &dfs), 0);
	CHECK_RC(dfs_open(dfs, NULL, "f", S_IFREG | 0600, O_RDWR | O_CREAT, OC_SX, 65536, NULL, &file), 0);
	after_a_fork();
	callbacks(pool);
	barriers();
	parents_with_calls();
	CHECK_RC(dfs_release(file), 0);
	CHECK_RC(dfs_umount(dfs), 0);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(daos_fini(), 0);
	return 0;
}
