//! Engines that a command talks to one by one, outside of any pool that is in use: what each has, and
//! which pool it belongs to. Changes nothing by itself.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use azekura_proto::message::typed::{Adopt, Map};
use azekura_proto::pool_map::{Address, PoolMap};
use azekura_proto::{EngineId, Status};
use azekura_wire::Secret;

use crate::asking::{self, EngineLine};
use crate::waiting::{self, Waiting};

/// Which engine of which pool one is.
type Place = (EngineId, PoolMap);

/// The addresses of one engine. A type of its own, since a plain list would be several values.
#[derive(Clone, Debug)]
pub(super) struct EngineAddresses(pub(super) Vec<Address>);

/// Reads addresses with commas between them.
pub(super) fn parse_engine(text: &str) -> Result<EngineAddresses, String> {
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(EngineAddresses)
}

/// An engine that answers.
pub(super) struct Engine {
    /// Where, the address that it has answered at first among them.
    pub(super) addresses: Vec<Address>,
    /// How many targets it has.
    pub(super) targets: u16,
    /// Its place in a pool, if it has one.
    pub(super) place: Option<Place>,
    line: EngineLine,
}

impl Engine {
    /// Calls the engine at the first of its addresses where it answers, whatever pool it belongs to.
    ///
    /// # Errors
    /// If it answers at none, or does not know the secret.
    pub(super) fn call(addresses: &[Address], secret: &Secret) -> Result<Self> {
        let mut last = anyhow!("an engine has no address");
        let shown: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let _waiting = Waiting::begin(format!(
            "the engine at {} does not answer: waiting for up to {} s",
            shown.join(" "),
            waiting::LIMIT.as_secs()
        ));
        for (address, timeout) in asking::with_timeouts(addresses) {
            match Self::call_at(address, secret, timeout) {
                Ok((line, targets, place)) => {
                    return Ok(Self { addresses: addresses.to_vec(), targets, place, line });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn call_at(
        address: &Address,
        secret: &Secret,
        timeout: Duration,
    ) -> Result<(EngineLine, u16, Option<Place>)> {
        let mut line = EngineLine::dial(address, None, secret, timeout)?;
        let targets = line.report()?.targets.len() as u16;
        let place = match line.try_ask(Map)? {
            Ok(map) => {
                map.validate().map_err(|what| anyhow!("{address}: {what}"))?;
                Some((line.engine(), map))
            }
            // What it says as long as it belongs to none.
            Err(Status::Unsupported) => None,
            Err(status) => return Err(anyhow!("{address}: the engine answered: {status}")),
        };
        Ok((line, targets, place))
    }

    /// How it is named in messages.
    pub(super) fn shown(&self) -> String {
        self.addresses.first().map(ToString::to_string).unwrap_or_default()
    }

    /// Gives it a place in a pool, or a newer map of its own.
    ///
    /// # Errors
    /// If it does not take it.
    pub(super) fn adopt(&mut self, map: &PoolMap, engine: EngineId) -> Result<()> {
        let request = Adopt { map: map.clone(), engine };
        self.line.ask(request).with_context(|| format!("engine {} at {}", engine.0, self.shown()))
    }
}
