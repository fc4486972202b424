/*
 * Objects: values under dkeys and akeys, arrays of records, key-values, arrays of cells, and what a
 * container keeps.
 *
 * objects POOL CONTAINER
 */
#include <stdio.h>
#include <string.h>

#include <daos.h>
#include <gurt/common.h>

#include "check.h"

static daos_handle_t pool, container, none;

static daos_key_t
key(const char *text)
{
	daos_key_t made;

	d_iov_set(&made, (void *)text, strlen(text));
	return made;
}

static daos_obj_id_t
new_id(enum daos_otype_t type, daos_oclass_id_t class)
{
	daos_obj_id_t id = {0, 0};

	CHECK_RC(daos_cont_alloc_oids(container, 1, &id.lo, NULL), 0);
	id.hi = 77;
	CHECK_RC(daos_obj_generate_oid(container, &id, type, class, 0, 0), 0);
	CHECK(daos_obj_id2type(id) == type && daos_obj_id2class(id) == class);
	return id;
}

static int
update_one(daos_handle_t object, uint64_t flags, const char *dkey, const char *akey, const void *data,
	   size_t bytes)
{
	daos_key_t d = key(dkey);
	daos_iod_t iod = {.iod_name = key(akey), .iod_type = DAOS_IOD_SINGLE, .iod_size = bytes,
			  .iod_nr = 1};
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};

	d_iov_set(&iov, (void *)data, bytes);
	return daos_obj_update(object, none, flags, &d, 1, &iod, &list, NULL);
}

static int
fetch_one(daos_handle_t object, const char *dkey, const char *akey, char *data, size_t room,
	  daos_size_t *size)
{
	daos_key_t d = key(dkey);
	daos_iod_t iod = {.iod_name = key(akey), .iod_type = DAOS_IOD_SINGLE, .iod_size = DAOS_REC_ANY,
			  .iod_nr = 1};
	d_iov_t iov;
	d_sg_list_t list = {1, 7, &iov};
	int rc;

	d_iov_set(&iov, data, room);
	rc = daos_obj_fetch(object, none, 0, &d, 1, &iod, data ? &list : NULL, NULL, NULL);
	*size = iod.iod_size;
	CHECK(rc != 0 || !data || list.sg_nr_out == (iod.iod_size > 0));
	CHECK(rc != 0 || !data || *size == 0 || iov.iov_len == *size);
	return rc;
}

static void
single_values(void)
{
	daos_obj_id_t id = new_id(DAOS_OT_MULTI_HASHED, OC_SX);
	daos_handle_t object, reader;
	daos_key_t d = key("d");
	char data[16], big[130 * 1024] = {0};
	daos_size_t size;

	CHECK_RC(daos_obj_open(container, id, DAOS_OO_RW, &object, NULL), 0);
	CHECK_RC(daos_obj_open(container, id, DAOS_OO_RO, &reader, NULL), 0);
	CHECK_RC(fetch_one(reader, "d", "a", data, sizeof(data), &size), 0);
	CHECK(size == 0);
	CHECK_RC(update_one(reader, 0, "d", "a", "x", 1), -DER_NO_PERM);
	CHECK_RC(update_one(object, 0, "d", "a", "hello", 5), 0);
	CHECK_RC(update_one(object, DAOS_COND_AKEY_INSERT, "d", "a", "other", 5), -DER_EXIST);
	CHECK_RC(update_one(object, DAOS_COND_AKEY_UPDATE, "d", "b", "other", 5), -DER_NONEXIST);
	CHECK_RC(update_one(object, DAOS_COND_AKEY_INSERT, "d", "b", "second", 6), 0);
	CHECK_RC(update_one(object, 0, "d", "c", big, sizeof(big)), -DER_OVERFLOW);
	CHECK_RC(update_one(object, 0, "", "a", "x", 1), -DER_INVAL);
	CHECK_RC(update_one(object, 0, "d", "a", "", 0), -DER_INVAL);
	CHECK_RC(fetch_one(reader, "d", "a", data, sizeof(data), &size), 0);
	CHECK(size == 5 && memcmp(data, "hello", 5) == 0);
	CHECK_RC(fetch_one(reader, "d", "b", NULL, 0, &size), 0);
	CHECK(size == 6);
	CHECK_RC(fetch_one(reader, "d", "b", data, 3, &size), -DER_REC2BIG);
	CHECK_RC(daos_obj_punch_akeys(object, none, DAOS_COND_PUNCH, &d, 1, &(daos_key_t){"zz", 2, 2}, NULL),
		 -DER_NONEXIST);
	CHECK_RC(daos_obj_punch_akeys(object, none, 0, &d, 1, &(daos_key_t){"b", 1, 1}, NULL), 0);
	CHECK_RC(fetch_one(reader, "d", "b", data, sizeof(data), &size), 0);
	CHECK(size == 0);
	CHECK_RC(daos_obj_punch_dkeys(reader, none, 0, 1, &d, NULL), -DER_NO_PERM);
	CHECK_RC(daos_obj_punch_dkeys(object, none, 0, 1, &d, NULL), 0);
	CHECK_RC(fetch_one(reader, "d", "a", data, sizeof(data), &size), 0);
	CHECK(size == 0);
	CHECK_RC(daos_obj_close(reader, NULL), 0);
	CHECK_RC(daos_obj_close(reader, NULL), -DER_NO_HDL);
	CHECK_RC(fetch_one(reader, "d", "a", data, sizeof(data), &size), -DER_NO_HDL);
	CHECK_RC(daos_obj_close(object, NULL), 0);
}

/* Records of 12 bytes under one akey, in ranges that are cut across the memory. */
static void
array_values(void)
{
	enum { RECORD = 12 };
	daos_obj_id_t id = new_id(DAOS_OT_MULTI_HASHED, OC_S2);
	daos_recx_t where[2] = {{3, 2}, {1000000, 3}}, all = {2, 4}, found[4];
	daos_iod_t iod = {.iod_type = DAOS_IOD_ARRAY, .iod_size = RECORD, .iod_nr = 2,
			  .iod_recxs = where};
	char data[5 * RECORD], back[5 * RECORD], more[4 * RECORD];
	daos_key_t d = key("d"), a = key("records");
	daos_handle_t object;
	daos_anchor_t anchor = {0};
	daos_epoch_range_t epochs[4];
	daos_size_t size;
	daos_event_t event;
	uint64_t seen = 0;
	d_iov_t iovs[2];
	d_sg_list_t list = {2, 0, iovs};
	bool done;

	for (size_t at = 0; at < sizeof(data); at++)
		data[at] = (char)(at * 7 + 1);
	iod.iod_name = a;
	CHECK_RC(daos_obj_open(container, id, DAOS_OO_RW, &object, NULL), 0);
	CHECK_RC(daos_obj_list_recx(object, none, &d, &a, &size, &(uint32_t){4}, found, epochs, &anchor,
				    true, NULL), 0);
	CHECK(size == 0 && daos_anchor_is_eof(&anchor));
	d_iov_set(&iovs[0], data, 17);
	d_iov_set(&iovs[1], data + 17, sizeof(data) - 17);
	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(daos_obj_update(object, none, 0, &d, 1, &iod, &list, &event), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && event.ev_error == 0);
	CHECK_RC(update_one(object, 0, "d", "records", "x", 1), -DER_INVAL);
	iod.iod_size = RECORD + 1;
	CHECK_RC(daos_obj_update(object, none, 0, &d, 1, &iod, &list, NULL), -DER_INVAL);

	/* The size is found out; the ranges come back as they were written, holes as zeros. */
	iod.iod_size = DAOS_REC_ANY;
	CHECK_RC(daos_obj_fetch(object, none, 0, &d, 1, &iod, NULL, NULL, NULL), 0);
	CHECK(iod.iod_size == RECORD);
	d_iov_set(&iovs[0], back, 31);
	d_iov_set(&iovs[1], back + 31, sizeof(back) - 31);
	CHECK_RC(daos_obj_fetch(object, none, 0, &d, 1, &iod, &list, NULL, NULL), 0);
	CHECK(list.sg_nr_out == 2 && memcmp(back, data, sizeof(data)) == 0);
	iod.iod_nr = 1;
	iod.iod_recxs = &all;
	memset(more, 'x', sizeof(more));
	d_iov_set(&iovs[0], more, sizeof(more));
	list.sg_nr = 1;
	CHECK_RC(daos_obj_fetch(object, none, 0, &d, 1, &iod, &list, NULL, NULL), 0);
	CHECK(memcmp(more + RECORD, data, 2 * RECORD) == 0);
	for (int at = 0; at < RECORD; at++)
		CHECK(more[at] == 0 && more[3 * RECORD + at] == 0);
	iovs[0].iov_buf_len = RECORD;
	CHECK_RC(daos_obj_fetch(object, none, 0, &d, 1, &iod, &list, NULL, NULL), -DER_REC2BIG);

	/* Every record is in one of the ranges, and the hole between them is in none. */
	memset(&anchor, 0, sizeof(anchor));
	while (!daos_anchor_is_eof(&anchor)) {
		uint32_t count = 1;

		CHECK_RC(daos_obj_list_recx(object, none, &d, &a, &size, &count, found, epochs, &anchor,
					    true, NULL), 0);
		CHECK(size == RECORD);
		for (uint64_t index = 0; count == 1 && index < 5; index++) {
			uint64_t record = index < 2 ? 3 + index : 999998 + index;

			if (found[0].rx_idx <= record && record < found[0].rx_idx + found[0].rx_nr)
				seen |= 1 << index;
			CHECK(found[0].rx_idx > 500000 || found[0].rx_idx + found[0].rx_nr < 500000);
		}
	}
	CHECK(seen == 0x1f);
	CHECK_RC(daos_obj_query_key(object, none, DAOS_GET_MAX | DAOS_GET_RECX, &d, &a, found, NULL), 0);
	CHECK(found[0].rx_idx == 1000002 && found[0].rx_nr == 1);

	CHECK_RC(daos_obj_punch_akeys(object, none, DAOS_COND_PUNCH, &d, 1, &a, NULL), 0);
	CHECK_RC(daos_obj_fetch(object, none, 0, &d, 1, &iod, NULL, NULL, NULL), 0);
	CHECK(iod.iod_size == 0);
	CHECK_RC(update_one(object, 0, "d", "records", "x", 1), 0);
	CHECK_RC(daos_obj_close(object, NULL), 0);
}

static void
listing(void)
{
	enum { KEYS = 70, LONG = 600 };
	daos_obj_id_t id = new_id(DAOS_OT_MULTI_HASHED, OC_S4);
	char name[LONG + 1], room[2 * LONG], akeys[64];
	bool seen[KEYS] = {false};
	daos_handle_t object;
	daos_anchor_t anchor = {0};
	daos_key_desc_t kds[8];
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};
	daos_key_t d;
	uint64_t number;
	uint32_t count;
	int found = 0;

	/* Keys that are longer than an anchor, of which a page holds one or two. */
	memset(name, 'k', LONG);
	name[LONG] = 0;
	CHECK_RC(daos_obj_open(container, id, DAOS_OO_RW, &object, NULL), 0);
	for (int index = 0; index < KEYS; index++) {
		int at = sprintf(name, "%d", index);

		name[at] = 'k';
		CHECK_RC(update_one(object, 0, name, "one", "1", 1), 0);
	}
	d_iov_set(&iov, room, LONG - 1);
	count = 8;
	CHECK_RC(daos_obj_list_dkey(object, none, &count, kds, &list, &anchor, NULL), -DER_KEY2BIG);
	CHECK(kds[0].kd_key_len == LONG);
	memset(&anchor, 0, sizeof(anchor));
	while (!daos_anchor_is_eof(&anchor)) {
		d_iov_set(&iov, room, sizeof(room));
		count = 8;
		CHECK_RC(daos_obj_list_dkey(object, none, &count, kds, &list, &anchor, NULL), 0);
		CHECK(count <= 2);
		for (uint32_t index = 0; index < count; index++) {
			int which = atoi(room + (size_t)index * LONG);

			CHECK(kds[index].kd_key_len == LONG && !seen[which]);
			seen[which] = true;
			found++;
		}
	}
	CHECK(found == KEYS);

	/* Both kinds of values under one dkey. */
	CHECK_RC(update_one(object, 0, "both", "single", "1", 1), 0);
	d = key("both");
	d_iov_set(&iov, "0123", 4);
	CHECK_RC(daos_obj_update(object, none, 0, &d, 1,
				 &(daos_iod_t){key("array"), DAOS_IOD_ARRAY, 2, 0, 1,
					       &(daos_recx_t){0, 2}},
				 &list, NULL), 0);
	memset(&anchor, 0, sizeof(anchor));
	found = 0;
	while (!daos_anchor_is_eof(&anchor)) {
		count = 1;
		d_iov_set(&iov, akeys, sizeof(akeys));
		CHECK_RC(daos_obj_list_akey(object, none, &d, &count, kds, &list, &anchor, NULL), 0);
		if (count == 1 && kds[0].kd_val_type == DAOS_IOD_ARRAY)
			CHECK(kds[0].kd_key_len == 5 && memcmp(akeys, "array", 5) == 0);
		else if (count == 1)
			CHECK(kds[0].kd_key_len == 6 && memcmp(akeys, "single", 6) == 0);
		found += (int)count;
	}
	CHECK(found == 2);
	CHECK_RC(daos_obj_punch(object, none, 0, NULL), 0);
	memset(&anchor, 0, sizeof(anchor));
	count = 8;
	CHECK_RC(daos_obj_list_dkey(object, none, &count, kds, &list, &anchor, NULL), 0);
	CHECK(count == 0 && daos_anchor_is_eof(&anchor));

	for (number = 5; number <= 900; number += 179) {
		d_iov_set(&d, &number, sizeof(number));
		d_iov_set(&iov, "v", 1);
		CHECK_RC(daos_obj_update(object, none, 0, &d, 1,
					 &(daos_iod_t){key("a"), DAOS_IOD_SINGLE, 1, 0, 1, NULL},
					 &list, NULL), 0);
	}
	d_iov_set(&d, &number, sizeof(number));
	CHECK_RC(daos_obj_query_key(object, none, DAOS_GET_MAX | DAOS_GET_DKEY, &d, NULL, NULL, NULL), 0);
	CHECK(number == 900);
	CHECK_RC(daos_obj_query_key(object, none, DAOS_GET_MIN | DAOS_GET_DKEY, &d, NULL, NULL, NULL), 0);
	CHECK(number == 5);
	CHECK_RC(daos_obj_punch(object, none, 0, NULL), 0);
	CHECK_RC(daos_obj_query_key(object, none, DAOS_GET_MIN | DAOS_GET_DKEY, &d, NULL, NULL, NULL),
		 -DER_NONEXIST);
	CHECK_RC(daos_obj_close(object, NULL), 0);
}

static void
key_values(void)
{
	enum { KEYS = 40 };
	daos_obj_id_t id = new_id(DAOS_OT_KV_HASHED, OC_SX);
	daos_handle_t kv;
	daos_anchor_t anchor = {0};
	daos_key_desc_t kds[16];
	char name[32], data[32], room[256];
	daos_size_t size;
	daos_event_t events[KEYS];
	char names[KEYS][32];
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};
	int found = 0;
	bool done;

	CHECK_RC(daos_kv_open(container, id, DAOS_OO_RW, &kv, NULL), 0);
	for (int index = 0; index < KEYS; index++) {
		sprintf(names[index], "key%02d", index);
		CHECK_RC(daos_event_init(&events[index], DAOS_HDL_INVAL, NULL), 0);
		CHECK_RC(daos_kv_put(kv, none, 0, names[index], 5, names[index], &events[index]), 0);
	}
	for (int index = 0; index < KEYS; index++) {
		CHECK_RC(daos_event_test(&events[index], DAOS_EQ_WAIT, &done), 0);
		CHECK(done && events[index].ev_error == 0);
	}
	CHECK_RC(daos_kv_put(kv, none, DAOS_COND_KEY_INSERT, "key01", 1, "x", NULL), -DER_EXIST);
	CHECK_RC(daos_kv_put(kv, none, DAOS_COND_KEY_UPDATE, "other", 1, "x", NULL), -DER_NONEXIST);
	for (int index = 0; index < KEYS; index++) {
		sprintf(name, "key%02d", index);
		size = sizeof(data);
		CHECK_RC(daos_kv_get(kv, none, 0, name, &size, data, NULL), 0);
		CHECK(size == 5 && memcmp(data, name, 5) == 0);
	}
	size = 2;
	CHECK_RC(daos_kv_get(kv, none, 0, "key00", &size, data, NULL), -DER_REC2BIG);
	CHECK(size == 5);
	CHECK_RC(daos_kv_get(kv, none, 0, "key00", &size, NULL, NULL), 0);
	CHECK(size == 5);
	CHECK_RC(daos_kv_get(kv, none, 0, "none", &size, data, NULL), 0);
	CHECK(size == 0);
	CHECK_RC(daos_kv_get(kv, none, DAOS_COND_KEY_GET, "none", &size, data, NULL), -DER_NONEXIST);
	CHECK_RC(daos_kv_remove(kv, none, DAOS_COND_KEY_REMOVE, "none", NULL), -DER_NONEXIST);
	CHECK_RC(daos_kv_remove(kv, none, 0, "none", NULL), 0);
	CHECK_RC(daos_kv_remove(kv, none, DAOS_COND_KEY_REMOVE, "key00", NULL), 0);
	while (!daos_anchor_is_eof(&anchor)) {
		uint32_t count = 16;

		d_iov_set(&iov, room, 32);
		CHECK_RC(daos_kv_list(kv, none, &count, kds, &list, &anchor, NULL), 0);
		CHECK(count <= 6);
		found += (int)count;
	}
	CHECK(found == KEYS - 1);
	CHECK_RC(daos_kv_destroy(kv, none, NULL), 0);
	CHECK_RC(daos_kv_get(kv, none, 0, "key05", &size, NULL, NULL), 0);
	CHECK(size == 0);
	CHECK_RC(daos_kv_close(kv, NULL), 0);
}

static void
parts_of_a_listing(daos_handle_t object)
{
	daos_anchor_t parts[2];
	daos_handle_t array, bad = {.cookie = 1 << 30};
	uint32_t count = 0;

	CHECK_RC(daos_obj_anchor_split(object, &count, NULL), 0);
	CHECK(count == 1);
	memset(parts, 0xff, sizeof(parts));
	CHECK_RC(daos_obj_anchor_split(object, &count, parts), 0);
	CHECK(count == 1 && daos_anchor_is_zero(&parts[0]) && !daos_anchor_is_zero(&parts[1]));
	CHECK_RC(daos_obj_anchor_split(object, NULL, parts), -DER_INVAL);
	CHECK_RC(daos_obj_anchor_split(bad, &count, parts), -DER_NO_HDL);
	CHECK_RC(daos_obj_anchor_set(object, 0, &parts[1]), 0);
	CHECK(daos_anchor_is_zero(&parts[1]));
	CHECK_RC(daos_obj_anchor_set(object, 1, &parts[1]), -DER_INVAL);
	CHECK_RC(daos_obj_anchor_set(object, 0, NULL), -DER_INVAL);
	CHECK_RC(daos_obj_anchor_set(bad, 0, &parts[1]), -DER_NO_HDL);
	CHECK_RC(daos_array_open_with_attr(container, new_id(DAOS_OT_ARRAY_BYTE, OC_S1), none, DAOS_OO_RO, 1, 1, &array, NULL), 0);
	CHECK_RC(daos_obj_anchor_split(array, &count, parts), -DER_NO_HDL);
	CHECK_RC(daos_obj_anchor_set(array, 0, parts), -DER_NO_HDL);
	CHECK_RC(daos_array_close(array, NULL), 0);
	CHECK(daos_is_array(new_id(DAOS_OT_ARRAY_ATTR, OC_S1)) && !daos_is_kv(new_id(DAOS_OT_ARRAY, OC_S1)));
	CHECK(daos_is_kv(new_id(DAOS_OT_KV_LEXICAL, OC_S1)) && !daos_is_array(new_id(DAOS_OT_MULTI_HASHED, OC_S1)));
	CHECK(daos_key_is_null((daos_key_t){NULL, 0, 0}) && !daos_key_is_null((daos_key_t){parts, 1, 1}));
}

static void
arrays(void)
{
	enum { CELLS = 3000 };
	daos_obj_id_t id = new_id(DAOS_OT_ARRAY, OC_SX), bare = new_id(DAOS_OT_ARRAY_BYTE, OC_S2);
	static uint64_t cells[CELLS], back[CELLS];
	daos_range_t where[2] = {{10, 1000}, {5000, 2000}};
	daos_array_iod_t iod = {2, where, 0, 0};
	daos_array_stbuf_t stat;
	daos_size_t size, cell, chunk;
	daos_handle_t array, again;
	daos_event_t event;
	d_iov_t iov;
	d_sg_list_t list = {1, 0, &iov};
	bool done;

	for (int index = 0; index < CELLS; index++)
		cells[index] = (uint64_t)index * 0x0101010101ULL + 3;
	CHECK_RC(daos_array_open(container, id, none, DAOS_OO_RW, &cell, &chunk, &array, NULL), -DER_NONEXIST);
	CHECK_RC(daos_array_create(container, id, none, 0, 512, &array, NULL), -DER_INVAL);
	CHECK_RC(daos_array_create(container, id, none, 8, 512, &array, NULL), 0);
	CHECK_RC(daos_array_create(container, id, none, 8, 512, &again, NULL), -DER_EXIST);
	CHECK_RC(daos_array_get_size(array, none, &size, NULL), 0);
	CHECK(size == 0);
	d_iov_set(&iov, cells, sizeof(cells));
	CHECK_RC(daos_event_init(&event, DAOS_HDL_INVAL, NULL), 0);
	CHECK_RC(daos_array_write(array, none, &iod, &list, &event), 0);
	CHECK_RC(daos_event_test(&event, DAOS_EQ_WAIT, &done), 0);
	CHECK(done && event.ev_error == 0);
	CHECK_RC(daos_array_open(container, id, none, DAOS_OO_RO, &cell, &chunk, &again, NULL), 0);
	CHECK(cell == 8 && chunk == 512);
	CHECK_RC(daos_array_get_attr(again, &chunk, &cell), 0);
	CHECK(cell == 8 && chunk == 512);
	d_iov_set(&iov, back, sizeof(back));
	CHECK_RC(daos_array_read(again, none, &iod, &list, NULL), 0);
	CHECK(memcmp(back, cells, sizeof(cells)) == 0 && iod.arr_nr_read == CELLS);
	CHECK_RC(daos_array_write(again, none, &iod, &list, NULL), -DER_NO_PERM);
	CHECK_RC(daos_array_stat(again, none, &stat, NULL), 0);
	CHECK(stat.st_size == 7000);
	where[0] = (daos_range_t){6990, 30};
	iod.arr_nr = 1;
	d_iov_set(&iov, back, 30 * 8);
	CHECK_RC(daos_array_read(again, none, &iod, &list, NULL), 0);
	CHECK(iod.arr_nr_read == 10 && iod.arr_nr_short_read == 20 && back[10] == 0);
	CHECK(back[9] == cells[CELLS - 1]);
	d_iov_set(&iov, back, 29 * 8);
	CHECK_RC(daos_array_read(again, none, &iod, &list, NULL), -DER_INVAL);
	CHECK_RC(daos_array_set_size(array, none, 50, NULL), 0);
	CHECK_RC(daos_array_get_size(again, none, &size, NULL), 0);
	CHECK(size == 50);
	CHECK_RC(daos_array_close(again, NULL), 0);
	CHECK_RC(daos_array_destroy(array, none, NULL), 0);
	CHECK_RC(daos_array_close(array, NULL), 0);
	CHECK_RC(daos_array_open(container, id, none, DAOS_OO_RW, &cell, &chunk, &array, NULL), -DER_NONEXIST);

	/* Sizes that everybody knows. */
	CHECK_RC(daos_array_open_with_attr(container, bare, none, DAOS_OO_RW, 1, 1000, &array, NULL), 0);
	where[0] = (daos_range_t){999, 24};
	d_iov_set(&iov, cells, 24);
	CHECK_RC(daos_array_write(array, none, &iod, &list, NULL), 0);
	CHECK_RC(daos_array_get_size(array, none, &size, NULL), 0);
	CHECK(size == 1023);
	CHECK_RC(daos_kv_get(array, none, 0, "x", &size, NULL, NULL), -DER_NO_HDL);
	CHECK_RC(daos_array_close(array, NULL), 0);
}

static int
objects_of(daos_obj_id_t wanted)
{
	daos_obj_id_t ids[2];
	daos_anchor_t anchor = {0};
	daos_handle_t table;
	int found = 0, all = 0;

	CHECK_RC(daos_oit_open(container, 5, &table, NULL), -DER_NOSYS);
	CHECK_RC(daos_oit_open(container, DAOS_EPOCH_MAX, &table, NULL), 0);
	while (!daos_anchor_is_eof(&anchor)) {
		uint32_t count = 2;

		CHECK_RC(daos_oit_list(table, ids, &count, &anchor, NULL), 0);
		for (uint32_t index = 0; index < count; index++)
			found += ids[index].lo == wanted.lo && ids[index].hi == wanted.hi;
		all += (int)count;
	}
	CHECK_RC(daos_oit_close(table, NULL), 0);
	CHECK(found <= 1 && all >= found);
	return found;
}

static void
containers(const char *name)
{
	const char *names[2] = {"first", "second"};
	const void *values[2] = {"one", "twenty-two"};
	size_t sizes[2] = {3, 10}, room;
	char data[2][16], list[64];
	void *buffers[2] = {data[0], data[1]};
	daos_prop_t *props = daos_prop_alloc(3), *acl, *merged;
	daos_obj_id_t id = new_id(DAOS_OT_MULTI_HASHED, OC_S1);
	daos_cont_info_t info;
	daos_handle_t object, other;
	uint64_t first, then;
	uuid_t uuid;
	char text[40];

	room = 0;
	CHECK_RC(daos_cont_list_attr(container, NULL, &room, NULL), 0);
	CHECK(room == 0);
	CHECK_RC(daos_cont_set_attr(container, 2, names, values, sizes, NULL), 0);
	CHECK_RC(daos_cont_list_attr(container, NULL, &room, NULL), 0);
	CHECK(room == 13);
	CHECK_RC(daos_cont_list_attr(container, list, &room, NULL), 0);
	CHECK(memcmp(list, "first\0second", 13) == 0);
	CHECK_RC(daos_cont_get_attr(container, 2, names, NULL, sizes, NULL), 0);
	CHECK(sizes[0] == 3 && sizes[1] == 10);
	CHECK_RC(daos_cont_get_attr(container, 2, names, buffers, sizes, NULL), 0);
	CHECK(memcmp(data[0], "one", 3) == 0 && memcmp(data[1], "twenty-two", 10) == 0);
	CHECK_RC(daos_cont_del_attr(container, 1, names, NULL), 0);
	CHECK_RC(daos_cont_get_attr(container, 1, names, NULL, sizes, NULL), -DER_NONEXIST);

	CHECK_RC(daos_cont_alloc_oids(container, 100, &first, NULL), 0);
	CHECK_RC(daos_cont_alloc_oids(container, 1, &then, NULL), 0);
	CHECK(then == first + 100);

	props->dpp_entries[0].dpe_type = DAOS_PROP_CO_LABEL;
	props->dpp_entries[1].dpe_type = DAOS_PROP_CO_LAYOUT_TYPE;
	props->dpp_entries[2].dpe_type = DAOS_PROP_CO_OWNER;
	CHECK_RC(daos_cont_query(container, &info, props, NULL), 0);
	CHECK(strcmp(props->dpp_entries[0].dpe_str, name) == 0);
	CHECK(props->dpp_entries[1].dpe_val == DAOS_PROP_CO_LAYOUT_POSIX);
	CHECK(props->dpp_entries[2].dpe_flags & DAOS_PROP_ENTRY_NOT_SET);
	CHECK_RC(daos_cont_get_acl(container, &acl, NULL), 0);
	merged = daos_prop_merge(props, acl);
	CHECK(merged != NULL && merged->dpp_nr == 3);
	CHECK(strcmp(daos_prop_entry_get(merged, DAOS_PROP_CO_LABEL)->dpe_str, name) == 0);
	CHECK(daos_prop_entry_get(merged, DAOS_PROP_CO_STATUS) == NULL);
	daos_prop_free(acl);
	daos_prop_free(props);
	daos_prop_free(merged);
	CHECK(daos_prop_alloc(1000) == NULL);

	CHECK_RC(daos_cont_create(pool, &uuid, NULL, NULL), 0);
	for (int byte = 0, at = 0; byte < 16; byte++) {
		if (byte == 4 || byte == 6 || byte == 8 || byte == 10)
			text[at++] = '-';
		at += sprintf(text + at, "%02x", uuid[byte]);
	}
	CHECK_RC(daos_cont_open(pool, text, DAOS_COO_RW, &other, NULL, NULL), 0);
	CHECK_RC(daos_cont_close(other, NULL), 0);
	CHECK_RC(daos_cont_destroy(pool, text, 0, NULL), 0);

	CHECK(objects_of(id) == 0);
	CHECK_RC(daos_obj_open(container, id, DAOS_OO_RW, &object, NULL), 0);
	parts_of_a_listing(object);
	CHECK(objects_of(id) == 0);
	CHECK_RC(update_one(object, 0, "d", "a", "x", 1), 0);
	CHECK(objects_of(id) == 1);
	CHECK_RC(daos_obj_punch(object, none, 0, NULL), 0);
	CHECK(objects_of(id) == 0);
	/* An object that was emptied is the same one for whoever has it open. */
	CHECK_RC(update_one(object, 0, "d", "a", "x", 1), 0);
	CHECK(objects_of(id) == 1);
	CHECK_RC(daos_obj_close(object, NULL), 0);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3);
	CHECK_RC(daos_init(), 0);
	CHECK_RC(daos_pool_connect(argv[1], NULL, DAOS_PC_RW, &pool, NULL, NULL), 0);
	CHECK_RC(daos_cont_create_with_label(pool, argv[2], NULL, NULL, NULL), 0);
	CHECK_RC(daos_cont_open(pool, argv[2], DAOS_COO_RW, &container, NULL, NULL), 0);
	single_values();
	array_values();
	listing();
	key_values();
	arrays();
	containers(argv[2]);
	CHECK_RC(daos_cont_close(container, NULL), 0);
	CHECK_RC(daos_pool_disconnect(pool, NULL), 0);
	CHECK_RC(daos_fini(), 0);
	return 0;
}
