//! How to partition a device, and whether a device can be partitioned so. Pure.

/// How to partition a device. Source: SYCL 2020, section 4.6.4.4.
///
/// ```
/// use usmq::{Partition, Queue};
///
/// let device = Queue::get("cpu")?.device().clone();
/// if device.max_compute_units() > 1 {
///     let halves = device.sub_devices(&Partition::Equally(1))?;
///     assert_eq!(halves[0].parent(), Some(&device));
/// }
/// # Ok::<(), usmq::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partition {
    /// Sub-devices of this many compute units each.
    Equally(usize),
    /// One sub-device per entry, with that many compute units.
    ByCounts(Vec<usize>),
    /// One sub-device per NUMA domain.
    Numa,
}

/// The partitions that a device supports.
pub(super) struct Partitions<'a> {
    pub units: usize,
    pub max_parts: usize,
    /// Names of `sycl::info::partition_property` and `sycl::info::partition_affinity_domain`.
    pub properties: &'a [String],
    pub domains: &'a [String],
}

impl Partition {
    /// Why no device can be partitioned so.
    pub(super) fn fault(&self) -> Option<String> {
        match self {
            Self::Equally(0) => Some("a sub-device needs at least one compute unit, not 0".to_owned()),
            Self::ByCounts(counts) if counts.is_empty() || counts.contains(&0) => {
                Some(format!("each sub-device needs at least one compute unit, not {counts:?}"))
            }
            _ => None,
        }
    }

    /// The `sycl::errc` and the reason if the device cannot be partitioned so. Drivers report some of these by an
    /// unspecific status.
    pub(super) fn obstacle(&self, device: &Partitions<'_>) -> Option<(&'static str, String)> {
        let Partitions { units, max_parts, properties, domains } = device;
        let has = |name: &str| properties.iter().any(|property| property == name);
        let is_supported = match self {
            Self::Equally(_) => has("partition_equally"),
            Self::ByCounts(_) => has("partition_by_counts"),
            Self::Numa => domains.iter().any(|domain| domain == "numa"),
        };
        if !is_supported || *max_parts == 0 {
            let supported = if properties.is_empty() { "nothing".to_owned() } else { properties.join(", ") };
            return Some(("feature_not_supported", format!("its driver supports {supported}")));
        }
        let why = match self {
            Self::Equally(wanted) if wanted >= units => {
                format!("it has {units} compute units, so parts of {wanted} are not smaller than it")
            }
            Self::ByCounts(counts) if counts.len() > *max_parts => {
                format!("it has at most {max_parts} parts, not {}", counts.len())
            }
            Self::ByCounts(counts)
                if counts.iter().try_fold(*units, |left, count| left.checked_sub(*count)).is_none() =>
            {
                format!("it has only {units} compute units")
            }
            _ => return None,
        };
        Some(("invalid", why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obstacle(
        partition: &Partition,
        properties: &[&str],
        domains: &[&str],
    ) -> Option<(&'static str, String)> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (properties, domains) = (&owned(properties)[..], &owned(domains)[..]);
        partition.obstacle(&Partitions { units: 4, max_parts: 3, properties, domains })
    }

    #[test]
    fn partitions_that_a_device_lacks_are_named() {
        const CPU: &[&str] = &["partition_equally", "partition_by_counts"];
        const GPU: &[&str] = &["partition_by_affinity_domain"];
        let counts = |counts: &[usize]| Partition::ByCounts(counts.to_vec());
        for good in [Partition::Equally(1), Partition::Equally(3), counts(&[1, 2]), counts(&[4])] {
            assert_eq!(obstacle(&good, CPU, &[]), None);
        }
        assert_eq!(obstacle(&Partition::Numa, GPU, &["numa"]), None);
        for (partition, properties, code, words) in [
            (Partition::Equally(4), CPU, "invalid", "4 compute units, so parts of 4"),
            (Partition::Equally(usize::MAX), CPU, "invalid", "4 compute units"),
            (counts(&[usize::MAX, 1]), CPU, "invalid", "only 4 compute units"),
            (counts(&[1, 1, 1, 1]), CPU, "invalid", "at most 3 parts, not 4"),
            (Partition::Numa, CPU, "feature_not_supported", "partition_equally, partition_by_counts"),
            (Partition::Numa, GPU, "feature_not_supported", "partition_by_affinity_domain"),
            (Partition::Equally(1), GPU, "feature_not_supported", "partition_by_affinity_domain"),
            (counts(&[1]), GPU, "feature_not_supported", "partition_by_affinity_domain"),
            (Partition::Equally(1), &[], "feature_not_supported", "supports nothing"),
        ] {
            let (found, why) = obstacle(&partition, properties, &[]).unwrap();
            assert!(found == code && why.contains(words), "{partition:?}: {found} {why}");
        }
    }
}
