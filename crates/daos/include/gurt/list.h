/*
 * Doubly linked lists whose links are members of what they link: a head and its links are the same
 * type, and an empty list or an unlinked link points at itself.
 */
#ifndef AZEKURA_GURT_LIST_H
#define AZEKURA_GURT_LIST_H

#include <stddef.h>

typedef struct d_list_head {
	struct d_list_head *next;
	struct d_list_head *prev;
} d_list_t;

#define D_LIST_HEAD_INIT(name) { &(name), &(name) }
#define D_LIST_HEAD(name) d_list_t name = D_LIST_HEAD_INIT(name)
#define D_INIT_LIST_HEAD(head) ((head)->next = (head)->prev = (head))

static inline int
d_list_empty(const d_list_t *head)
{
	return head->next == head;
}

static inline void
d_list_join_(d_list_t *before, d_list_t *after)
{
	before->next = after;
	after->prev = before;
}

/* Puts a link at the front of a list. */
static inline void
d_list_add(d_list_t *link, d_list_t *head)
{
	d_list_join_(link, head->next);
	d_list_join_(head, link);
}

/* Puts a link at the end of a list. */
static inline void
d_list_add_tail(d_list_t *link, d_list_t *head)
{
	d_list_join_(head->prev, link);
	d_list_join_(link, head);
}

static inline void
d_list_del(d_list_t *link)
{
	d_list_join_(link->prev, link->next);
}

/* Takes a link out, after which d_list_empty() says so of it. */
static inline void
d_list_del_init(d_list_t *link)
{
	d_list_del(link);
	D_INIT_LIST_HEAD(link);
}

#define d_list_entry(link, type, member) \
	((type *)((char *)(link) - offsetof(type, member)))

#define d_list_for_each(pos, head) \
	for ((pos) = (head)->next; (pos) != (head); (pos) = (pos)->next)

#endif
