//! The schedule: heats of blocks of laps, until the intervals are narrow enough or the time is spent.
