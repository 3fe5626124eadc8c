/* SPDX-License-Identifier: MIT
 *
 * Tells `tune record --sampler emulation` where a program's operations begin and end:
 *
 *   #include "tiertune.h"
 *
 *   tiertune_begin();
 *   answer(request);
 *   tiertune_end();
 *
 * An operation is begun and ended by the same thread, and is not inside another one. Each call is
 * one instruction that does nothing, with or without the recorder. For C and C++, x86-64; elsewhere
 * nothing at all.
 */
#ifndef TIERTUNE_H
#define TIERTUNE_H

#if defined(__x86_64__) && defined(__GNUC__)
/* nopl 0x545401NN(%rax); engine/record/plugin/probes.cpp looks for it. */
#define TIERTUNE_MARK(number) \
  __asm__ volatile(".byte 0x0f, 0x1f, 0x80, " #number ", 0x01, 0x54, 0x54" ::: "memory")
#else
#define TIERTUNE_MARK(number) ((void)0)
#endif

static inline void tiertune_begin(void) { TIERTUNE_MARK(0x01); }
static inline void tiertune_end(void) { TIERTUNE_MARK(0x02); }

#endif
