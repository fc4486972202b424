/*
 * Objects: values under two keys. A dkey says on which target values lie, an akey names one of them: a
 * single value, which is read and written as a whole, or an array of records of one size, which is read
 * and written in ranges.
 *
 * Functions give 0 or a negative number of <daos_errno.h>. `th` is DAOS_TX_NONE: there are no
 * transactions (-DER_NOSYS). With an event, daos_obj_fetch() and daos_obj_update() go on in the
 * background, as <daos_event.h> says. Keys have 1 to 1024 bytes, an akey of an array 8 less.
 */
#ifndef AZEKURA_DAOS_OBJ_H
#define AZEKURA_DAOS_OBJ_H

#include <daos_cont.h>
#include <daos_errno.h>
#include <daos_event.h>
#include <daos_obj_class.h>
#include <daos_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What an object is for. */
enum daos_otype_t {
	DAOS_OT_MULTI_HASHED = 0,
	DAOS_OT_OIT = 1,
	DAOS_OT_DKEY_UINT64 = 2,
	DAOS_OT_AKEY_UINT64 = 3,
	DAOS_OT_MULTI_UINT64 = 4,
	DAOS_OT_DKEY_LEXICAL = 5,
	DAOS_OT_AKEY_LEXICAL = 6,
	DAOS_OT_MULTI_LEXICAL = 7,
	DAOS_OT_KV_HASHED = 8,
	DAOS_OT_KV_UINT64 = 9,
	DAOS_OT_KV_LEXICAL = 10,
	DAOS_OT_ARRAY = 11,
	DAOS_OT_ARRAY_ATTR = 12,
	DAOS_OT_ARRAY_BYTE = 13,
	DAOS_OT_OIT_V2 = 14,
	DAOS_OT_MAX = 14,
};

/* Of the id of an object, bits 63..56 of `hi` are its type, 55..32 its class; the rest is the caller's. */
#define OID_FMT_TYPE_SHIFT 56
#define OID_FMT_CLASS_SHIFT 48
#define OID_FMT_META_SHIFT 32

static inline enum daos_otype_t
daos_obj_id2type(daos_obj_id_t oid)
{
	return (enum daos_otype_t)(oid.hi >> OID_FMT_TYPE_SHIFT);
}

static inline daos_oclass_id_t
daos_obj_id2class(daos_obj_id_t oid)
{
	return (daos_oclass_id_t)((oid.hi >> OID_FMT_CLASS_SHIFT & 0xff) << 24 |
				  (oid.hi >> OID_FMT_META_SHIFT & 0xffff));
}

static inline bool
daos_obj_id_is_nil(daos_obj_id_t oid)
{
	return oid.hi == 0 && oid.lo == 0;
}

static inline bool
daos_is_array_type(enum daos_otype_t type)
{
	return type == DAOS_OT_ARRAY || type == DAOS_OT_ARRAY_ATTR || type == DAOS_OT_ARRAY_BYTE;
}

static inline bool
daos_is_array(daos_obj_id_t oid)
{
	return daos_is_array_type(daos_obj_id2type(oid));
}

static inline bool
daos_is_kv_type(enum daos_otype_t type)
{
	return type == DAOS_OT_KV_HASHED || type == DAOS_OT_KV_UINT64 || type == DAOS_OT_KV_LEXICAL;
}

static inline bool
daos_is_kv(daos_obj_id_t oid)
{
	return daos_is_kv_type(daos_obj_id2type(oid));
}

typedef uint16_t daos_oclass_hints_t;

/*
 * Puts type and class into an id whose `lo` and lower half of `hi` are the caller's. Of class 0 an
 * object gets that of new files of the container. `hints` and `args` are not read.
 */
int daos_obj_generate_oid(daos_handle_t coh, daos_obj_id_t *oid, enum daos_otype_t type,
			  daos_oclass_id_t cid, daos_oclass_hints_t hints, uint32_t args);

/* How an object is opened. */
enum {
	DAOS_OO_RO = 1 << 1,
	DAOS_OO_RW = 1 << 2,
	DAOS_OO_EXCL = 1 << 3,
	DAOS_OO_IO_RAND = 1 << 4,
	DAOS_OO_IO_SEQ = 1 << 5,
};

/* Conditions of an update, fetch or punch, for all its akeys: that there is no value yet, or that there
 * is one. -DER_EXIST, -DER_NONEXIST. Conditions on dkeys: -DER_NOSYS. */
enum {
	DAOS_COND_PUNCH = 1 << 0,
	DAOS_COND_DKEY_INSERT = 1 << 1,
	DAOS_COND_DKEY_UPDATE = 1 << 2,
	DAOS_COND_DKEY_FETCH = 1 << 3,
	DAOS_COND_AKEY_INSERT = 1 << 4,
	DAOS_COND_AKEY_UPDATE = 1 << 5,
	DAOS_COND_AKEY_FETCH = 1 << 6,
	DAOS_COND_PER_AKEY = 1 << 7,
};

/* Records of an array: from which on, and how many. */
typedef struct {
	uint64_t rx_idx;
	uint64_t rx_nr;
} daos_recx_t;

typedef enum {
	DAOS_IOD_NONE = 0,
	DAOS_IOD_SINGLE = 1,
	DAOS_IOD_ARRAY = 2,
} daos_iod_type_t;

/* As the size of records: whatever it is. */
enum { DAOS_REC_ANY = 0 };

/*
 * A value. `iod_size`: bytes of a single value or of each record; of a fetch it becomes what it is, and
 * 0 if there is no such value of this type. `iod_nr` is 1 for a single value, else the number of
 * `iod_recxs`. `iod_flags`: none.
 */
typedef struct {
	daos_key_t iod_name;
	daos_iod_type_t iod_type;
	daos_size_t iod_size;
	uint64_t iod_flags;
	uint32_t iod_nr;
	daos_recx_t *iod_recxs;
} daos_iod_t;

/* A map of what was fetched; none is given. */
typedef struct daos_iom daos_iom_t;

/* A key of a listing: its bytes in the buffer. */
typedef struct {
	daos_size_t kd_key_len;
	uint32_t kd_val_type;
} daos_key_desc_t;

/* Opens an object. There need not be anything in it. */
int daos_obj_open(daos_handle_t coh, daos_obj_id_t oid, unsigned int mode, daos_handle_t *oh,
		  daos_event_t *ev);
int daos_obj_close(daos_handle_t oh, daos_event_t *ev);

/*
 * Sets values under a dkey, each from the list of its memory. Single values of one call are set in one
 * atomic step, and before the arrays. A single value has `iod_size` bytes, 1 to 128 KiB (-DER_INVAL,
 * -DER_OVERFLOW). An akey stays of the type, and an array with the record size, that its first update
 * gave it (-DER_INVAL), until it is punched. A condition on the akeys of arrays: -DER_NOSYS.
 */
int daos_obj_update(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey,
		    unsigned int nr, daos_iod_t *iods, d_sg_list_t *sgls, daos_event_t *ev);

/*
 * Gets values under a dkey, each into the list of its memory; with `sgls` NULL only their sizes. What an
 * array does not have reads as zeros. Of an akey without a value nothing is written: sg_nr_out is 0, else
 * the number of pieces of memory that hold data, and their iov_len how much. `ioms` is NULL. -DER_REC2BIG
 * if the memory is too small.
 */
int daos_obj_fetch(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey,
		   unsigned int nr, daos_iod_t *iods, d_sg_list_t *sgls, daos_iom_t *ioms,
		   daos_event_t *ev);

/* Removes everything, everything under these dkeys, or these akeys. With DAOS_COND_PUNCH an akey has to
 * be there (-DER_NONEXIST); for objects and dkeys that is -DER_NOSYS. */
int daos_obj_punch(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_event_t *ev);
int daos_obj_punch_dkeys(daos_handle_t oh, daos_handle_t th, uint64_t flags, unsigned int nr,
			 daos_key_t *dkeys, daos_event_t *ev);
int daos_obj_punch_akeys(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey,
			 unsigned int nr, daos_key_t *akeys, daos_event_t *ev);

/*
 * Lists keys: up to *nr, as many as fit into the memory of `sgl`, one behind the other; *nr becomes how
 * many. The end is reached when daos_anchor_is_eof(). An anchor belongs to the handle of its listing.
 * -DER_KEY2BIG if not even one fits; kds[0].kd_key_len is then what it takes.
 */
int daos_obj_list_dkey(daos_handle_t oh, daos_handle_t th, uint32_t *nr, daos_key_desc_t *kds,
		       d_sg_list_t *sgl, daos_anchor_t *anchor, daos_event_t *ev);
int daos_obj_list_akey(daos_handle_t oh, daos_handle_t th, daos_key_t *dkey, uint32_t *nr,
		       daos_key_desc_t *kds, d_sg_list_t *sgl, daos_anchor_t *anchor,
		       daos_event_t *ev);

/* Parts of an object whose dkeys may be listed at the same time: one. `anchors` may be NULL, or has room for
 * *nr of them. -DER_INVAL for an `index` beyond it. */
int daos_obj_anchor_split(daos_handle_t oh, uint32_t *nr, daos_anchor_t *anchors);
int daos_obj_anchor_set(daos_handle_t oh, uint32_t index, daos_anchor_t *anchor);

/*
 * Lists where an array has records, in rising order only. What is there is told in the steps in which the
 * target keeps data, so a range may hold zeros that nobody has written. *size becomes the record size, 0
 * if there is no such array. `eprs` may be NULL.
 */
int daos_obj_list_recx(daos_handle_t oh, daos_handle_t th, daos_key_t *dkey, daos_key_t *akey,
		       daos_size_t *size, uint32_t *nr, daos_recx_t *recxs, daos_epoch_range_t *eprs,
		       daos_anchor_t *anchor, bool incr_order, daos_event_t *ev);

/* What daos_obj_query_key() is to look for. */
enum {
	DAOS_GET_MAX = 1 << 0,
	DAOS_GET_MIN = 1 << 1,
	DAOS_GET_DKEY = 1 << 2,
	DAOS_GET_AKEY = 1 << 3,
	DAOS_GET_RECX = 1 << 4,
};

/*
 * The greatest (DAOS_GET_MAX) or least key that is a uint64_t, at the places of those that are asked for,
 * and the last (first) record of an array; what is not asked for is given. It reads through all keys.
 * -DER_NONEXIST if there is none.
 */
int daos_obj_query_key(daos_handle_t oh, daos_handle_t th, uint64_t flags, daos_key_t *dkey,
		       daos_key_t *akey, daos_recx_t *recx, daos_event_t *ev);

/*
 * Lists the objects of a container that hold anything, without the files. `epoch` is 0 or
 * DAOS_EPOCH_MAX: objects are listed as they are now (-DER_NOSYS).
 */
int daos_oit_open(daos_handle_t coh, daos_epoch_t epoch, daos_handle_t *oh, daos_event_t *ev);
int daos_oit_close(daos_handle_t oh, daos_event_t *ev);
int daos_oit_list(daos_handle_t oh, daos_obj_id_t *oids, uint32_t *oids_nr, daos_anchor_t *anchor,
		  daos_event_t *ev);

#ifdef __cplusplus
}
#endif

#endif
