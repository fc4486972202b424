/*
 * Properties of containers: lists of typed entries.
 *
 * daos_cont_query() fills in what Azekura knows of a container; an entry of anything else, or of another
 * type, gets DAOS_PROP_ENTRY_NOT_SET. Where a container is made, properties are not read.
 */
#ifndef AZEKURA_DAOS_PROP_H
#define AZEKURA_DAOS_PROP_H

#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

enum daos_cont_props {
	DAOS_PROP_CO_MIN = 0x1000,
	/* String: the name. */
	DAOS_PROP_CO_LABEL,
	/* DAOS_PROP_CO_LAYOUT_POSIX: every container has a file system. */
	DAOS_PROP_CO_LAYOUT_TYPE,
	DAOS_PROP_CO_LAYOUT_VER,
	DAOS_PROP_CO_CSUM,
	DAOS_PROP_CO_CSUM_CHUNK_SIZE,
	DAOS_PROP_CO_CSUM_SERVER_VERIFY,
	DAOS_PROP_CO_REDUN_FAC,
	DAOS_PROP_CO_REDUN_LVL,
	DAOS_PROP_CO_SNAPSHOT_MAX,
	DAOS_PROP_CO_ACL,
	DAOS_PROP_CO_COMPRESS,
	DAOS_PROP_CO_ENCRYPT,
	DAOS_PROP_CO_OWNER,
	DAOS_PROP_CO_OWNER_GROUP,
	DAOS_PROP_CO_DEDUP,
	DAOS_PROP_CO_DEDUP_THRESHOLD,
	DAOS_PROP_CO_ROOTS,
	/* For daos_prop_val_2_co_status(). */
	DAOS_PROP_CO_STATUS,
	/* The next number that daos_cont_alloc_oids() gives. */
	DAOS_PROP_CO_ALLOCED_OID,
	DAOS_PROP_CO_EC_CELL_SZ,
	DAOS_PROP_CO_EC_PDA,
	DAOS_PROP_CO_RP_PDA,
	DAOS_PROP_CO_GLOBAL_VERSION,
	DAOS_PROP_CO_SCRUBBER_DISABLED,
	DAOS_PROP_CO_OBJ_VERSION,
	DAOS_PROP_CO_PERF_DOMAIN,
	DAOS_PROP_CO_MAX,
};

/* Longest label in bytes, without the zero byte, that programs have to have room for. */
#define DAOS_PROP_LABEL_MAX_LEN 127
#define DAOS_PROP_ENTRIES_MAX_NR 128

typedef uint16_t daos_cont_layout_t;

/* The second name is how programs spell it. */
enum {
	DAOS_PROP_CO_LAYOUT_UNKNOWN = 0,
	DAOS_PROP_CO_LAYOUT_UNKOWN = 0,
	DAOS_PROP_CO_LAYOUT_POSIX = 1,
	DAOS_PROP_CO_LAYOUT_HDF5 = 2,
	DAOS_PROP_CO_LAYOUT_PYTHON = 3,
};

enum {
	DAOS_PROP_CO_HEALTHY = 0,
	DAOS_PROP_CO_UNCLEAN = 1,
};

enum {
	DAOS_PROP_CO_REDUN_RANK = 1,
	DAOS_PROP_CO_REDUN_NODE = 2,
};

struct daos_co_status {
	uint16_t dcs_status;
	uint16_t dcs_flags;
	uint32_t dcs_pm_ver;
};

static inline void
daos_prop_val_2_co_status(uint64_t value, struct daos_co_status *status)
{
	status->dcs_flags = (uint16_t)(value >> 48);
	status->dcs_status = (uint16_t)(value >> 32);
	status->dcs_pm_ver = (uint32_t)value;
}

/* Objects that a container starts from; Azekura keeps none. */
struct daos_prop_co_roots {
	daos_obj_id_t cr_oids[4];
};

/* In dpe_flags: the entry has no value. */
enum {
	DAOS_PROP_ENTRY_NOT_SET = 1 << 0,
};

/* Strings are memory of malloc() that daos_prop_free() frees. */
struct daos_prop_entry {
	uint32_t dpe_type;
	uint16_t dpe_flags;
	uint16_t dpe_reserv;
	union {
		uint64_t dpe_val;
		char *dpe_str;
		void *dpe_val_ptr;
	};
};

typedef struct daos_prop {
	uint32_t dpp_nr;
	uint32_t dpp_reserv;
	struct daos_prop_entry *dpp_entries;
} daos_prop_t;

/* A list of so many entries, all zeros. NULL for more than DAOS_PROP_ENTRIES_MAX_NR, or without memory. */
daos_prop_t *daos_prop_alloc(uint32_t entries_nr);
/* Frees a list with its strings; NULL is fine. */
void daos_prop_free(daos_prop_t *prop);
/* A new list with the entries of both; of a type that both have, that of the second. NULL without
 * memory, or for too many. */
daos_prop_t *daos_prop_merge(daos_prop_t *old_prop, daos_prop_t *new_prop);
/* The entry of a type; NULL if there is none. */
struct daos_prop_entry *daos_prop_entry_get(daos_prop_t *prop, uint32_t type);

#ifdef __cplusplus
}
#endif

#endif
