//! A cluster: connects to its primaries, and finds out when the topology changes.
//!
//! The near cache connects to every primary itself, with tracking on at each, instead of leaving
//! the nodes to the client library: a connection that the library makes on its own would not be
//! tracked. Whenever the topology changes (a node redirects a request, the heartbeat finds other
//! slots, a connection ends), the whole generation ends: flush, learn the topology, connect.
//!
//! A key that moves with its slot is deleted at the old node, which reports it as a change. So
//! what was read before the move is invalidated even before the redirect is noticed.

use crate::connect::{Connect, with_address};
use crate::connection::{Connection, Ended, Login, within_time};
use crate::error::NearError;
use crate::link::Link;
use crate::request::Whole;
use crate::slots::{Range, SLOTS, Slots};
use futures_util::future::try_join_all;
use redis::{Client, Value};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Asks the first seed that answers for the primaries of the cluster, and connects to all of them.
///
/// Returns the link and the nodes by which the cluster can be found again.
pub(crate) async fn open(
    seeds: &[Client],
    connect: &Connect,
) -> Result<(Link, Vec<Client>), NearError> {
    let none = "the cluster has 0 nodes to begin with, but needs at least one";
    let mut fault = NearError::Config(none.into());
    for seed in seeds {
        match open_from(seed, connect).await {
            Ok(opened) => return Ok(opened),
            Err(error) => fault = error,
        }
    }
    Err(fault)
}

async fn open_from(seed: &Client, connect: &Connect) -> Result<(Link, Vec<Client>), NearError> {
    let settings = &connect.settings;
    let info = seed.get_connection_info().clone();
    let address = info.addr().to_string();
    // It is asked for the topology alone, and may be no primary.
    let opening = Connection::open(settings, info, Login::OfProvider, Ended::default(), |_| {});
    let asked = opening.await?;
    let ranges = ranges(&asked, &address);
    let ranges = within_time(settings.connect_timeout, &address, ranges).await?;
    if ranges.is_empty() {
        return Err(NearError::Config(format!(
            "the cluster of {address} has 0 slots with a node, but needs at least one: use `builder` \
             for a server that is no cluster"
        )));
    }
    let addresses: BTreeSet<&String> = ranges.iter().map(|range| &range.address).collect();
    let clients = addresses.into_iter().map(|a| with_address(seed, a));
    let clients = clients.collect::<Result<Vec<_>, _>>()?;
    let nodes = try_join_all(clients.iter().map(|client| connect.node(client, true)));
    let mut link = connect.link(nodes.await?);
    let turn = AtomicUsize::new(0);
    link.slots = Some(Slots { ranges, turn });
    Ok((link, clients))
}

/// Whether the topology that a node reports is still the one with which the link was made. Nodes
/// take turns. A node that replies with an error has no topology to compare.
pub(crate) async fn check(link: &Link, quiet: Duration) -> Result<(), NearError> {
    let Some(slots) = &link.slots else {
        return Ok(());
    };
    let turn = slots.turn.fetch_add(1, Ordering::Relaxed) % link.nodes.len();
    let node = &link.nodes[turn];
    let ranges = ranges(&node.main, &node.address);
    match node.main.while_bytes_arrive(quiet, ranges).await? {
        Ok(ranges) if ranges != slots.ranges => Err(NearError::Disconnected {
            reason: "the topology of the cluster changed".into(),
        }),
        Ok(_) | Err(NearError::Server(_)) => Ok(()),
        Err(ended) => Err(ended),
    }
}

/// Asks the node at this address which primary has which slots; sorted.
async fn ranges(asked: &Connection, address: &str) -> Result<Vec<Range>, NearError> {
    let mut cmd = redis::cmd("CLUSTER");
    cmd.arg("SLOTS");
    let reply = asked.send_one(&cmd).await;
    let reply = reply.map_err(NearError::requesting)?;
    let host = address.rsplit_once(':').map_or("", |(host, _)| host);
    let entries = array(reply).map(|entries| entries.into_iter().map(|entry| range(entry, host)));
    let ranges: Option<Vec<Range>> = entries.and_then(Iterator::collect);
    let mut ranges = ranges
        .ok_or_else(|| NearError::Protocol("an array of another shape to CLUSTER SLOTS".into()))?;
    ranges.sort_unstable();
    Ok(ranges)
}

fn array(reply: Value) -> Option<Vec<Value>> {
    redis::from_redis_value(reply).ok()
}

fn number(reply: Value) -> Option<u16> {
    let Whole(number) = redis::from_redis_value(reply).ok()?;
    u16::try_from(number).ok()
}

/// One entry: first slot, last slot, then the nodes, the primary first.
fn range(entry: Value, host: &str) -> Option<Range> {
    let mut entry = array(entry)?.into_iter();
    let first = number(entry.next()?)?;
    let last = number(entry.next()?)?;
    let mut primary = array(entry.next()?)?.into_iter();
    let name = redis::from_redis_value::<Option<String>>(primary.next()?).ok()?;
    let port = number(primary.next()?)?;
    if first > last || last >= SLOTS {
        return None;
    }
    // A node that does not know its own name says so with nothing, an empty one, or "?".
    let host = match name.as_deref() {
        Some(name) if !matches!(name, "" | "?") => name,
        _ => host,
    };
    Some(Range {
        first,
        last,
        address: format!("{host}:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: Value, port: Value) -> Value {
        let node = Value::Array(vec![name, port]);
        let replica = Value::Array(vec![Value::Nil, Value::Int(7001)]);
        Value::Array(vec![Value::Int(0), Value::Int(5), node, replica])
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_node_without_a_name_has_that_of_the_one_asked() {
        let address = |name| {
            range(entry(name, Value::Int(7000)), "asked")
                .unwrap()
                .address
        };
        assert_eq!(address(Value::Nil), "asked:7000");
        assert_eq!(address(text("")), "asked:7000");
        assert_eq!(address(text("?")), "asked:7000");
        assert_eq!(address(text("10.0.0.1")), "10.0.0.1:7000");
    }

    /// A request finds the node of its slot by the address of the range.
    #[test]
    fn a_node_has_the_address_of_its_range() {
        for url in ["redis://seed:7000/", "rediss://seed:7000/", "unix:///seed"] {
            let seed = Client::open(url).unwrap();
            for address in ["10.0.0.1:7001", "::1:7001", "name.example:7001"] {
                let node = with_address(&seed, address).unwrap();
                assert_eq!(node.get_connection_info().addr().to_string(), address);
            }
        }
    }

    #[test]
    fn an_entry_of_another_shape_is_none() {
        for port in [Value::Int(70_000), Value::Int(-1), text("7000"), Value::Nil] {
            let shown = format!("{port:?}");
            assert_eq!(range(entry(Value::Nil, port), "asked"), None, "{shown}");
        }
        assert_eq!(range(Value::Array(vec![Value::Int(0)]), "asked"), None);
        assert_eq!(range(Value::Nil, "asked"), None);
    }
}
