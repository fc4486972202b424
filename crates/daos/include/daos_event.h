/*
 * Events, and queues of events.
 *
 * A call with an event gives 0, or an error if the event cannot be used. Calls that move data (reads,
 * writes, fetches, updates) then go on in the background, several at a time; others are carried out
 * before they return. Either way the event completes with the call: ev_error says how that ended, as
 * the call would have given it without an event. Until then the event, its buffers, lists and results
 * belong to the call.
 *
 * An event is ready after daos_event_init(), runs from the call on, has completed when the call is over,
 * and is ready again once daos_eq_poll() or daos_event_test() has told so.
 */
#ifndef AZEKURA_DAOS_EVENT_H
#define AZEKURA_DAOS_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Timeouts, which otherwise are microseconds. */
#define DAOS_EQ_NOWAIT 0
#define DAOS_EQ_WAIT (-1)

/* Makes a queue. -DER_UNINIT. */
int daos_eq_create(daos_handle_t *eqh);

/* For daos_eq_destroy(): with events in it too. */
#define DAOS_EQ_DESTROY_FORCE 1

/*
 * Ends a queue. With events in it: -DER_BUSY, or with DAOS_EQ_DESTROY_FORCE calls that were not begun
 * with are given up, and those that were are waited for. -DER_NONEXIST.
 */
int daos_eq_destroy(daos_handle_t eqh, int flags);

/*
 * Takes up to `nevents` completed events out of a queue; gives how many. Waits for the first until the
 * timeout is over; with `wait_running` only as long as events run. -DER_INVAL, -DER_NONEXIST.
 */
int daos_eq_poll(daos_handle_t eqh, int wait_running, int64_t timeout, unsigned int nevents,
		 daos_event_t **events);

typedef enum {
	DAOS_EQR_COMPLETED = 1 << 0,
	DAOS_EQR_WAITING = 1 << 1,
	DAOS_EQR_ALL = DAOS_EQR_COMPLETED | DAOS_EQR_WAITING,
} daos_eq_query_t;

/* Events that have completed or run, which stay in the queue; gives how many. With `nevents` 0 or
 * `events` NULL it only counts. -DER_NONEXIST. */
int daos_eq_query(daos_handle_t eqh, daos_eq_query_t query, unsigned int nevents,
		  daos_event_t **events);

/*
 * Makes an event of a queue; of none, for daos_event_test(), if `eqh` is DAOS_HDL_INVAL; or a child of
 * `parent`, an event that is ready and no child, whatever `eqh` is. -DER_INVAL, -DER_NONEXIST,
 * -DER_NO_PERM.
 */
int daos_event_init(daos_event_t *ev, daos_handle_t eqh, daos_event_t *parent);
/* Ends an event with its children, and takes it out of its queue. -DER_BUSY while it runs, -DER_INVAL for
 * a child whose parent runs or was not asked for. */
int daos_event_fini(daos_event_t *ev);
/* The next child after `child` in the order of daos_event_init(); the first after NULL. NULL after the last. */
daos_event_t *daos_event_next(daos_event_t *parent, daos_event_t *child);

/* Waits until an event that is no child does not run any more, or the timeout is over; *flag says which.
 * What has completed comes out of its queue. -DER_NO_PERM for a child, -DER_NONEXIST if its queue is gone. */
int daos_event_test(daos_event_t *ev, int64_t timeout, bool *flag);

/*
 * Calls `cb` with `arg`, the event and what its call came to, once, when the next call of the event is over
 * and before the event completes: on the thread that has carried the call out. Several are called in the
 * order in which they came. What `cb` gives becomes ev_error if the call itself, and the others before,
 * gave 0. It may call anything, but has to wait for no event. Not called if the event ends without a call.
 * -DER_INVAL; -DER_NO_PERM once the event has completed, until it was asked for; -DER_BUSY for the 65th.
 */
typedef int (*daos_event_comp_cb_t)(void *arg, daos_event_t *ev, int rc);
int daos_event_register_comp_cb(daos_event_t *ev, daos_event_comp_cb_t cb, void *arg);

/*
 * No more children: the parent runs, and completes with the last of them and the first error of theirs.
 * It alone comes out of its queue. A call that is given the parent does the same, and completes not before
 * its children. All children have to be launched by then (-DER_NO_PERM), and a child ends only where its
 * parent does not run. -DER_INVAL without children.
 */
int daos_event_parent_barrier(daos_event_t *ev);

/* Completes the event and its children with -DER_CANCELED where nobody has begun with the call; what was
 * begun goes on. -DER_NO_PERM if nothing runs. */
int daos_event_abort(daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
