/*
 * What there is not (transactions and snapshots), and what a pool shows of its containers and targets.
 *
 * versions POOL CONTAINER
 */
#include <string.h>

#include <daos.h>

#include "check.h"

enum { MANY = 64 };

static daos_handle_t pool, container;
static const daos_handle_t none = {0}, bad = {.cookie = 1 << 30};

static void
transactions(void)
{
	daos_handle_t th = none;
	daos_event_t event, *polled;
	daos_handle_t queue;
	daos_epoch_t epoch;

	CHECK_RC(daos_tx_open(container, &th, 0, NULL), -DER_NOSYS);
	CHECK_RC(daos_tx_open(container, NULL, 0, NULL), -DER_INVAL);
	CHECK_RC(daos_tx_open(bad, &th, DAOS_TF_RDONLY, NULL), -DER_NO_HDL);
	CHECK_RC(daos_tx_open_snap(container, 1, &th, NULL), -DER_NOSYS);
	CHECK_RC(daos_tx_open_snap(container, 1, NULL, NULL), -DER_INVAL);
	CHECK_RC(daos_tx_open_snap(bad, 1, &th, NULL), -DER_NO_HDL);
	CHECK(daos_handle_is_inval(th));
	CHECK_RC(daos_tx_commit(DAOS_TX_NONE, NULL), -DER_NO_HDL);
	CHECK_RC(daos_tx_abort(container, NULL), -DER_NO_HDL);
	CHECK_RC(daos_tx_close(bad, NULL), -DER_NO_HDL);
	CHECK_RC(daos_tx_restart(DAOS_TX_NONE, NULL), -DER_NO_HDL);
	CHECK_RC(daos_tx_hdl2epoch(DAOS_TX_NONE, &epoch), -DER_NO_HDL);

	/* The error comes with the event, where there is one. */
	CHECK_RC(daos_eq_create(&queue), 0);
	CHECK_RC(daos_event_init(&event, queue, NULL), 0);
	CHECK_RC(daos_tx_open(container, &th, 0, &event), 0);
	CHECK_RC(daos_eq_poll(queue, 0, 0, 1, &polled), 1);
	CHECK(event.ev_error == -DER_NOSYS);
	CHECK_RC(daos_tx_commit(bad, &event), 0);
	CHECK_RC(daos_eq_poll(queue, 0, 0, 1, &polled), 1);
	CHECK(event.ev_error == -DER_NO_HDL);
	CHECK_RC(daos_eq_destroy(queue, 0), 0);
}

static void
snapshots(void)
{
	daos_epoch_t epoch = 5, epochs[4] = {0};
	daos_epoch_range_t range = {1, 1};
	daos_anchor_t anchor;
	int count = 4;

	CHECK_RC(daos_cont_create_snap(container, &epoch, NULL, NULL), -DER_NOSYS);
	CHECK_RC(daos_cont_create_snap(container, NULL, NULL, NULL), -DER_INVAL);
	CHECK_RC(daos_cont_create_snap(bad, &epoch, NULL, NULL), -DER_NO_HDL);
	CHECK_RC(daos_cont_create_snap_opt(container, &epoch, NULL, DAOS_SNAP_OPT_CR, NULL), -DER_NOSYS);
	CHECK_RC(daos_cont_create_snap_opt(container, NULL, NULL, DAOS_SNAP_OPT_CR, NULL), -DER_INVAL);
	CHECK_RC(daos_cont_destroy_snap(container, range, NULL), -DER_NOSYS);
	CHECK_RC(daos_cont_destroy_snap(pool, range, NULL), -DER_NO_HDL);
	CHECK_RC(daos_cont_rollback(container, epoch, NULL), -DER_NOSYS);
	CHECK_RC(daos_cont_rollback(bad, epoch, NULL), -DER_NO_HDL);
	CHECK(epoch == 5);

	CHECK_RC(daos_anchor_init(&anchor, 0), 0);
	CHECK_RC(daos_cont_list_snap(container, NULL, epochs, NULL, &anchor, NULL), -DER_INVAL);
	CHECK_RC(daos_cont_list_snap(container, &count, epochs, NULL, NULL, NULL), -DER_INVAL);
	CHECK_RC(daos_cont_list_snap(bad, &count, epochs, NULL, &anchor, NULL), -DER_NO_HDL);
	CHECK(count == 4 && !daos_anchor_is_eof(&anchor));
	CHECK_RC(daos_cont_list_snap(container, &count, epochs, NULL, &anchor, NULL), 0);
	CHECK(count == 0 && daos_anchor_is_eof(&anchor));
	daos_anchor_fini(&anchor);
}

/* How often a container is listed. */
static int
listed(const char *name, uuid_t uuid)
{
	struct daos_pool_cont_info all[MANY];
	daos_size_t count = MANY;
	int found = 0;

	CHECK_RC(daos_pool_list_cont(pool, &count, all, NULL), 0);
	CHECK(count <= MANY);
	for (daos_size_t index = 0; index < count; index++)
		if (strcmp(all[index].pci_label, name) == 0) {
			CHECK(memcmp(all[index].pci_uuid, uuid, sizeof(uuid_t)) == 0);
			found++;
		}
	return found;
}

static void
containers(const char *name)
{
	struct daos_pool_cont_info one;
	daos_cont_info_t info;
	daos_size_t count = 0;
	char other[64];
	uuid_t uuid;

	CHECK_RC(daos_cont_query(container, &info, NULL, NULL), 0);
	CHECK(listed(name, info.ci_uuid) == 1);
	CHECK_RC(daos_pool_list_cont(pool, &count, NULL, NULL), 0);
	CHECK(count >= 2);
	CHECK_RC(daos_pool_list_cont(pool, NULL, NULL, NULL), -DER_INVAL);
	CHECK_RC(daos_pool_list_cont(container, &count, NULL, NULL), -DER_NO_HDL);
	count = 1;
	CHECK_RC(daos_pool_list_cont(pool, &count, &one, NULL), -DER_TRUNC);
	CHECK(count >= 2);
	snprintf(other, sizeof(other), "%s-2", name);
	CHECK_RC(daos_cont_create_with_label(pool, other, NULL, &uuid, NULL), 0);
	CHECK(listed(other, uuid) == 1);
	CHECK_RC(daos_cont_destroy(pool, other, 0, NULL), 0);
	CHECK(listed(other, uuid) == 0);
}

static void
targets(void)
{
	daos_pool_info_t info = {.pi_bits = DPI_SPACE};
	daos_target_info_t target;
	uint32_t count = 0;

	CHECK_RC(daos_pool_query(pool, NULL, &info, NULL, NULL), 0);
	CHECK(info.pi_ntargets > 0 && info.pi_nnodes > 0);
	CHECK(info.pi_space.ps_space.s_total[DAOS_MEDIA_NVME] > 0);
	for (uint32_t rank = 0; rank < info.pi_nnodes; rank++)
		for (uint32_t index = 0; daos_pool_query_target(pool, index, rank, &target, NULL) == 0; index++) {
			CHECK(target.ta_state == DAOS_TS_UP_IN);
			CHECK(target.ta_space.s_total[DAOS_MEDIA_NVME] > 0);
			CHECK(target.ta_space.s_free[DAOS_MEDIA_NVME] <=
			      target.ta_space.s_total[DAOS_MEDIA_NVME]);
			count++;
		}
	CHECK(count == info.pi_ntargets);
	CHECK_RC(daos_pool_query_target(pool, 0, info.pi_nnodes, &target, NULL), -DER_NONEXIST);
	CHECK_RC(daos_pool_query_target(pool, info.pi_ntargets, 0, &target, NULL), -DER_NONEXIST);
	CHECK_RC(daos_pool_query_target(pool, 0, 1 << 20, &target, NULL), -DER_NONEXIST);
	CHECK_RC(daos_pool_query_target(pool, 0, 0, NULL, NULL), -DER_INVAL);
	CHECK_RC(daos_pool_query_target(bad, 0, 0, &target, NULL), -DER_NO_HDL);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK_RC(daos_init(), 0);
	CHECK_RC(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK_RC(daos_cont_create_with_label(pool, argv[2], NULL, NULL, NULL), 0);
	CHECK_RC(daos_cont_open(pool, argv[2], DAOS_COO_RW, &container, NULL, NULL), 0);
	transactions();
	snapshots();
	containers(argv[2]);
	targets();
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(daos_fini(), 0);
	return 0;
}
