/*
 * Transactions, of which there are none: every call takes DAOS_TX_NONE, and is carried out on its own. What
 * such a call does at once is said with it. Errors and events are as in <daos.h>.
 */
#ifndef AZEKURA_DAOS_API_H
#define AZEKURA_DAOS_API_H

#include <daos_errno.h>
#include <daos_event.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	DAOS_TF_RDONLY = 1 << 0,
	DAOS_TF_ZERO_COPY = 1 << 1,
};

/* -DER_NOSYS; -DER_NO_HDL and -DER_INVAL for a container or a place that are none. */
int daos_tx_open(daos_handle_t coh, daos_handle_t *th, uint64_t flags, daos_event_t *ev);
int daos_tx_open_snap(daos_handle_t coh, daos_epoch_t epoch, daos_handle_t *th, daos_event_t *ev);

/* -DER_NO_HDL: no handle is one of a transaction. */
int daos_tx_commit(daos_handle_t th, daos_event_t *ev);
int daos_tx_abort(daos_handle_t th, daos_event_t *ev);
int daos_tx_close(daos_handle_t th, daos_event_t *ev);
int daos_tx_restart(daos_handle_t th, daos_event_t *ev);
int daos_tx_hdl2epoch(daos_handle_t th, daos_epoch_t *epoch);

#ifdef __cplusplus
}
#endif

#endif
