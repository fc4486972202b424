//! Which link a host sends over to reach another: the fewest hops, the first link of the file where
//! there is a choice. Pure.

use std::collections::VecDeque;

fn far_end([one, other]: [usize; 2], host: usize) -> Option<usize> {
    match host {
        _ if host == one => Some(other),
        _ if host == other => Some(one),
        _ => None,
    }
}

/// How many links lie between each host and `destination`.
fn hops_to(destination: usize, hosts: usize, links: &[[usize; 2]]) -> Vec<Option<usize>> {
    let mut hops = vec![None; hosts];
    hops[destination] = Some(0);
    let mut queue = VecDeque::from([(destination, 0)]);
    while let Some((at, count)) = queue.pop_front() {
        for next in links.iter().filter_map(|ends| far_end(*ends, at)) {
            if hops[next].is_none() {
                hops[next] = Some(count + 1);
                queue.push_back((next, count + 1));
            }
        }
    }
    hops
}

/// For each host, for each other host the index of the link to send over; none where no way leads.
pub(crate) fn next_links(hosts: usize, links: &[[usize; 2]]) -> Vec<Vec<Option<usize>>> {
    let mut table = vec![vec![None; hosts]; hosts];
    for destination in 0..hosts {
        let hops = hops_to(destination, hosts, links);
        for (from, row) in table.iter_mut().enumerate() {
            row[destination] = links.iter().position(|ends| {
                far_end(*ends, from).is_some_and(|next| {
                    hops[next].is_some_and(|left| hops[from].is_some_and(|all| left + 1 == all))
                })
            });
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_way_is_taken() {
        // 0 - 1 - 2 - 3, and 0 - 3.
        let table = next_links(5, &[[0, 1], [1, 2], [2, 3], [0, 3]]);
        assert_eq!(table[0][1], Some(0));
        assert_eq!(table[0][3], Some(3));
        assert_eq!(table[1][3], Some(0));
        assert_eq!(table[2][0], Some(1));
        assert_eq!(table[0][0], None);
        assert_eq!(table[0][4], None);
    }
}
