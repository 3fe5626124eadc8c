// SPDX-License-Identifier: MIT

// The seam between a policy and a substrate (simulated machine or live process): all of it but
// core/oracle.hpp, which few include. A policy sees batches of events and a clock, and asks for
// migrations. It cannot tell which substrate it runs on.
//
// What both sides keep to:
//  - One thread makes all calls, in both directions. A substrate that has more threads hands their
//    events over to that one.
//  - Virtual dispatch happens per batch, never per access. Whoever looks at many pages asks for all
//    of them in one call.
//  - Between two of its calls into the policy a live substrate answers from what it has looked up,
//    so that a residency or a number of free pages is that of the last look.
//  - A unit (Memory::unit) is in one tier, has one accessed bit, and moves whole: there are no
//    partly moved units.
//
// What a policy must expect, because a live process does it:
//  - Ranges appear and vanish at any time, in small blocks and in any order (Policy::on_map()).
//  - A sample, a fault or the answer to a probe may name a page in no known range: it is not known
//    yet, is gone, or was never the policy's business.
//  - A request is asynchronous: it may start late, complete partly, or fail (`Outcome`); on pages
//    that have vanished it comes back as `gone`, or not at all once they were unmapped.
//  - Others move pages, take free pages and give them back: a page need not be where the policy put
//    it, and free pages need not add up (Counters::moved_by_others).
//  - A tier's capacity is a budget, which may change (Policy::on_capacity()).
//  - Sampling and moves are less than was asked for (set_sampling(), set_movers()).
//  - tick() comes late, never early (core/ticker.hpp).
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
