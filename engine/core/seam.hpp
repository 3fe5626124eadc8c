// The seam between a policy and a substrate (simulated machine or live process).
//
// A policy sees batches of events and a clock, and asks for migrations. It cannot tell which
// substrate it runs on. Virtual dispatch happens per batch, never per access.
//
// What a policy must expect, because a live process does it:
//  - a request is asynchronous: it may start late, complete partly, or fail (`Outcome`);
//  - a sample may name a page that is gone by now, or one in no known range;
//  - ranges appear and vanish at any time; requests on vanished pages come back as `gone`;
//  - the substrate may call tick() late, never early.
//
// This header is the whole seam but for core/oracle.hpp, which few include.
#pragma once

#include "core/counters.hpp"
#include "core/events.hpp"
#include "core/gauges.hpp"
#include "core/memory.hpp"
#include "core/moves.hpp"
#include "core/needs.hpp"
#include "core/placement.hpp"
#include "core/policy.hpp"
#include "core/registry.hpp"
#include "core/sampling.hpp"
#include "core/types.hpp"
#include "core/work.hpp"
