//! Crashes, failing disks and damaged files, on a disk in memory.

mod backup;
mod crash;
mod damage;
mod full;
mod lost_claims;
mod story;
