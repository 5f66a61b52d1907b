/*
 * A simulator of cache coherence, as a plugin of QEMU's user mode.
 *
 * Each guest thread is a core of its own, with an infinite cache. One guest thread runs at a time:
 * the one whose virtual clock is lowest (with a seeded random slack). Every memory access of the
 * guest (std, libc and inline assembly included) goes through a directory of 64-byte lines (MESI).
 * Instructions, misses, futexes and sleeps cost virtual time; the guest's clocks show that time.
 */
#define _GNU_SOURCE
#include "qemu_plugin_min.h"
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((visibility("default"))) int qemu_plugin_version = 1;
#define PUBLIC __attribute__((visibility("default")))

typedef int64_t ps; /* picoseconds of virtual time */
#define NS(x) ((ps)((x) * 1000.0))

/* Costs; all can be set by name=value. */
static struct { const char *name; double v; } par[] = {
    {"instr", 0.125},   /* ns for an instruction */
    {"rmw", 6},         /* ns more for an atomic read-modify-write in the own cache */
    {"pause", 15},      /* ns for PAUSE */
    {"xfer", 60},       /* ns: to get a line that another core has modified, or to invalidate others */
    {"sread", 40},      /* ns: to get back a line that is shared again */
    {"occ_w", 50},      /* ns for which a line is busy with a change of its owner */
    {"occ_r", 10},      /* ns for which it is busy with a reader */
    {"wakelat", 5000},  /* ns from a futex wake until the thread runs */
    {"wakecost", 1000}, /* ns for the caller of futex wake that wakes somebody */
    {"sys", 300},       /* ns for any other system call */
    {"slack", 20},      /* ns: mean slack of the scheduler */
    {"tick", 4000000},  /* ns: step of the coarse clock */
    {"ncpu", 64},       /* what sched_getaffinity says */
    {"warm", 100000},   /* ns of warm-up */
    {"warmops", 0},     /* and at least so many ops of warm-up */
    {"min", 100000},    /* ns of measurement at least */
    {"max", 20000000},  /* ns of measurement at most */
    {"minops", 10000},  /* ops at least */
    {"seed", 1},
    {"touched", 0},     /* 1: every line that the setup touched counts as held by all cores */
    {"debug", 0},
};
enum { INSTR, RMW, PAUSE, XFER, SREAD, OCC_W, OCC_R, WAKELAT, WAKECOST, SYS, SLACK, TICK, NCPU, WARM, WARMOPS, MIN, MAX, MINOPS, SEED, TOUCHED, DEBUG };
static ps c_instr, c_rmw, c_pause, c_xfer, c_sread, c_occw, c_occr;
static FILE *out;

#define MAXT 192
#define WORDS 3
struct line {
    uint64_t sh[WORDS];
    ps busy, ready; /* ready: when the line that its owner has prefetched arrives */
    int16_t owner; /* -1: none */
    uint8_t touched;
    uint32_t rm, sm, wx; /* measured: read misses from an owner, from sharers; changes of owner */
};
enum { RUN, VWAIT, REAL, DEAD };
struct thr {
    ps clock, limit, deadline /* of a wait; 0: none */, store_done;
    int id, state, worker, timed_out;
    uint64_t futex; /* address waited for; 0: sleep */
    _Atomic uint32_t token;
    struct line *wait_line; /* waits until this line is free */
    struct { uint64_t pc; struct line *l; } pred[64];
    uint64_t args[6];
    int64_t saved[2];
    int restore;
    /* statistics of the measured phase */
    uint64_t instr, acc, rmiss, smiss, wxfer, rmwx, rmw;
    ps stall;
};
static struct thr T[MAXT];
static int nT, nworkers, arrived;
static __thread struct thr *self;
static pthread_mutex_t big = PTHREAD_MUTEX_INITIALIZER;
static int on;       /* the token rules */
static int phase;    /* 0 setup, 1 warm-up, 2 measured, 3 over */
static volatile uint64_t *g_phase;
static volatile uint64_t *g_ops; /* stride 128 bytes */
static uint64_t ops0;
static ps t_start, t_meas, t_reported;
static uint64_t rng = 88172645463325252ull;
static uint64_t excl_lo, excl_hi;

static uint64_t rnd(void) { rng ^= rng << 13; rng ^= rng >> 7; rng ^= rng << 17; return rng; }
static long fut(_Atomic uint32_t *a, int op, uint32_t v) { return syscall(SYS_futex, a, op | FUTEX_PRIVATE_FLAG, v, 0, 0, 0); }

/* ---- lines ---- */
struct page { uint64_t no; struct line l[64]; struct page *next; };
static struct page **radix[1 << 17];
static struct page *pages;
static inline struct line *line_at(uint64_t a) {
    uint64_t hi = (a >> 30) & 0x1ffff, mid = (a >> 12) & 0x3ffff;
    struct page **m = radix[hi];
    if (__builtin_expect(!m, 0)) m = radix[hi] = mmap(0, 8 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    struct page *p = m[mid];
    if (__builtin_expect(!p, 0)) {
        p = calloc(1, sizeof *p);
        p->no = a >> 12; p->next = pages; pages = p; m[mid] = p;
        for (int i = 0; i < 64; i++) p->l[i].owner = -1;
    }
    return &p->l[(a >> 6) & 63];
}
/* who did what to which line */
struct ev { uint64_t line, pc; uint32_t n[3]; ps stall; };
#define EV (1 << 20)
static struct ev *ev;
static void note(uint64_t line, uint64_t pc, int kind, ps stall) {
    uint64_t h = (line * 0x9E3779B97F4A7C15ull ^ pc * 0xC2B2AE3D27D4EB4Full) >> 44;
    for (int i = 0; i < 64; i++) {
        struct ev *e = &ev[(h + i) & (EV - 1)];
        if (!e->pc) { e->line = line; e->pc = pc; }
        if (e->line == line && e->pc == pc) { e->n[kind]++; e->stall += stall; return; }
    }
}

/* ---- scheduler ---- */
static void finish(void);
static uint64_t sum_ops(void) { uint64_t s = 0; for (int i = 0; i < nworkers; i++) s += g_ops[i * 16]; return s; }

static void phases(ps now) {
    if (phase == 1 && now - t_start >= NS(par[WARM].v) && sum_ops() >= par[WARMOPS].v) {
        phase = 2; t_meas = now; ops0 = sum_ops(); *g_phase = 2;
    } else if (phase == 2) {
        ps d = now - t_meas;
        if (d >= NS(par[MAX].v) || (d >= NS(par[MIN].v) && sum_ops() - ops0 >= par[MINOPS].v)) {
            phase = 3; t_reported = t_reported > now ? t_reported : now; finish(); *g_phase = 3;
        }
    }
}
/* When the thread can go on: a thread that waits for a line, once that is free. */
static inline ps ready(const struct thr *t) {
    return t->wait_line && t->wait_line->busy > t->clock ? t->wait_line->busy : t->clock;
}
/* Picks the next thread; big is held. Null if all wait for the outside. Of the threads that wait for
   the same line, a random one comes first. */
static struct thr *pick(void) {
    for (;;) {
        struct thr *best = 0, *timer = 0;
        uint64_t ties = 1;
        for (int i = 0; i < nT; i++) {
            struct thr *t = &T[i];
            if (t->state == RUN) {
                if (!best || ready(t) < ready(best)) { best = t; ties = 1; }
                else if (ready(t) == ready(best) && rnd() % ++ties == 0) best = t;
            }
            if (t->state == VWAIT && t->deadline && (!timer || t->deadline < timer->deadline)) timer = t;
        }
        if (timer && (!best || timer->deadline <= ready(best))) {
            timer->state = RUN; timer->timed_out = 1;
            ps at = timer->deadline + NS(par[WAKELAT].v);
            if (timer->clock < at) timer->clock = at;
            timer->deadline = 0;
            continue;
        }
        if (!best) return 0;
        best->clock = ready(best);
        best->wait_line = 0;
        ps lim = INT64_MAX;
        for (int i = 0; i < nT; i++) {
            struct thr *t = &T[i];
            if (t != best && t->state == RUN && ready(t) < lim) lim = ready(t);
            if (t->state == VWAIT && t->deadline && t->deadline < lim) lim = t->deadline;
        }
        ps s = NS(par[SLACK].v);
        /* the ends of the phases are looked for when a thread reaches its limit */
        if (lim > best->clock + NS(2000)) lim = best->clock + NS(2000);
        best->limit = lim + (s ? (ps)(rnd() % (uint64_t)(2 * s)) : 0);
        return best;
    }
}
static int holder = -1;
static void give(struct thr *t) { /* big is held */
    holder = t ? t->id : -1;
    if (t) { atomic_store(&t->token, 1); fut(&t->token, FUTEX_WAKE, 1); }
}
static void await(struct thr *me) {
    while (!atomic_load(&me->token)) fut(&me->token, FUTEX_WAIT, 0);
    atomic_store(&me->token, 0);
}
/* The holder gives way to whoever is first now. */
static void resched(struct thr *me) {
    pthread_mutex_lock(&big);
    if (phase == 1 || phase == 2) phases(me->clock);
    struct thr *n = pick();
    if (n == me) { pthread_mutex_unlock(&big); return; }
    give(n);
    pthread_mutex_unlock(&big);
    await(me);
}
/* The thread becomes runnable from outside (a new thread, or back from a blocking call). */
static void enter(struct thr *me) {
    pthread_mutex_lock(&big);
    me->state = RUN;
    if (holder >= 0) {
        struct thr *h = &T[holder];
        if (me->clock < h->clock) me->clock = h->clock;
        if (h->limit > me->clock) h->limit = me->clock; /* a benign race */
        pthread_mutex_unlock(&big);
        await(me);
    } else {
        struct thr *n = pick();
        if (n == me) { holder = me->id; pthread_mutex_unlock(&big); }
        else { give(n); pthread_mutex_unlock(&big); await(me); }
    }
}
static void leave(struct thr *me, int state) {
    pthread_mutex_lock(&big);
    me->state = state;
    give(pick());
    pthread_mutex_unlock(&big);
}
static struct thr *join(void) {
    pthread_mutex_lock(&big);
    struct thr *t = &T[nT];
    t->id = nT++; t->worker = -1;
    if (nT > MAXT - 1) abort();
    t->state = REAL;
    pthread_mutex_unlock(&big);
    self = t;
    enter(t);
    return t;
}
static inline struct thr *me(void) {
    if (__builtin_expect(!self, 0)) return join();
    return self;
}

/* ---- callbacks of code ---- */
struct tbi { ps cost; uint32_t n; };
static void on_tb(unsigned v, void *u) {
    (void)v;
    if (!on) return;
    struct thr *t = me();
    struct tbi *b = u;
    t->clock += b->cost;
    if (phase == 2) t->instr += b->n;
    if (t->clock > t->limit) resched(t);
}
/* Before a locked instruction: waits until the line is free, if it is the same one as last time. So
   such an instruction takes effect when the core has got the line, not when it has asked for it. */
static void on_lock(unsigned v, void *pc) {
    (void)v;
    if (!on || phase == 0 || phase == 3) return;
    struct thr *t = me();
    unsigned h = ((uint64_t)pc * 0x9E3779B97F4A7C15ull) >> 58;
    if (t->pred[h].pc != (uint64_t)pc) return;
    struct line *l = t->pred[h].l;
    if (l->owner != t->id && l->busy > t->clock) { ps from = t->clock; t->wait_line = l; resched(t); if (phase == 2) t->stall += t->clock - from; }
}
static int is_locked(const uint8_t *d, size_t z) {
    size_t i = 0;
    for (; i < z; i++) {
        if (d[i] == 0xf0) return 1;
        if (d[i] == 0x66 || d[i] == 0xf2 || d[i] == 0xf3 || (d[i] >= 0x40 && d[i] <= 0x4f) || d[i] == 0x64) continue;
        break;
    }
    return i + 1 < z && (d[i] == 0x86 || d[i] == 0x87) && (d[i + 1] >> 6) != 3;
}
static void on_mem(unsigned v, qemu_plugin_meminfo_t info, uint64_t a, void *pc) {
    (void)v;
    if (!on || (a >= excl_lo && a < excl_hi)) return;
    struct thr *t = me();
    struct line *l = line_at(a);
    if (phase == 0 || phase == 3) { l->touched = 1; return; }
    int rw = (info >> 16) & 3, id = t->id, w = id >> 6;
    uint64_t bit = 1ull << (id & 63);
    int counted = phase == 2;
    if (counted) t->acc++;
    if (rw == QEMU_PLUGIN_MEM_R) {
        if (l->sh[w] & bit) {
            if (l->owner == id && l->ready > t->clock) {
                if (counted) t->stall += l->ready - t->clock;
                t->clock = l->ready;
            }
            return;
        }
        ps stall = 0;
        if (l->owner >= 0) { /* another core has it modified */
            ps s = t->clock > l->busy ? t->clock : l->busy;
            stall = s + c_xfer - t->clock; l->busy = s + c_occr; l->owner = -1;
            if (counted) { t->rmiss++; l->rm++; note(a >> 6, (uint64_t)pc, 0, stall); }
        } else if (l->touched == 2) { /* it was written since tracing began; shared now */
            ps s = t->clock > l->busy ? t->clock : l->busy;
            stall = s + c_sread - t->clock; l->busy = s + c_occr / 2;
            if (counted) { t->smiss++; l->sm++; note(a >> 6, (uint64_t)pc, 1, stall); }
        }
        l->sh[w] |= bit;
        t->clock += stall;
        if (counted) t->stall += stall;
    } else {
        ps stall = 0, own = l->owner == id ? l->ready : 0;
        if (l->owner != id) {
            int others = 0;
            for (int i = 0; i < WORDS; i++) others |= (l->sh[i] & ~(i == w ? bit : 0)) != 0;
            if (others) {
                ps s = t->clock > l->busy ? t->clock : l->busy;
                own = s + c_xfer; l->busy = s + c_occw;
                stall = own - t->clock;
            }
            memset(l->sh, 0, sizeof l->sh);
            l->sh[w] = bit; l->owner = id; l->touched = 2; l->ready = 0;
            if (others && counted) { t->wxfer++; l->wx++; if (rw == 3) t->rmwx++; note(a >> 6, (uint64_t)pc, 2, rw == 3 ? stall : 0); }
        }
        if (rw == QEMU_PLUGIN_MEM_RW) {
            unsigned h = ((uint64_t)pc * 0x9E3779B97F4A7C15ull) >> 58;
            t->pred[h].pc = (uint64_t)pc; t->pred[h].l = l;
        }
        if (rw == QEMU_PLUGIN_MEM_RW) { /* waits for the store buffer and for the line */
            ps end = t->clock;
            if (t->store_done > end) end = t->store_done;
            if (own > end) end = own;
            if (counted) { t->rmw++; t->stall += end - t->clock; }
            t->clock = end + c_rmw;
        } else if (own > t->store_done) t->store_done = own;
    }
    if (t->clock > t->limit) resched(t);
}
/* A prefetch of a line that is to be written: a load with a prefix that changes nothing, since the
   emulator executes no prefetch. The core gets the line, and waits for it when it uses it. */
static void on_prefetch(unsigned v, qemu_plugin_meminfo_t info, uint64_t a, void *pc) {
    (void)v; (void)info;
    if (!on || (a >= excl_lo && a < excl_hi)) return;
    struct thr *t = me();
    struct line *l = line_at(a);
    if (phase == 0 || phase == 3) { l->touched = 1; return; }
    int id = t->id, w = id >> 6;
    uint64_t bit = 1ull << (id & 63);
    if (l->owner == id) return;
    int others = 0;
    for (int i = 0; i < WORDS; i++) others |= (l->sh[i] & ~(i == w ? bit : 0)) != 0;
    l->ready = 0;
    if (others) {
        ps s = t->clock > l->busy ? t->clock : l->busy;
        l->ready = s + c_xfer; l->busy = s + c_occw;
        if (phase == 2) { t->wxfer++; l->wx++; note(a >> 6, (uint64_t)pc, 2, 0); }
    }
    memset(l->sh, 0, sizeof l->sh);
    l->sh[w] = bit; l->owner = id; l->touched = 2;
}
static int is_prefetch(const uint8_t *d, size_t z) {
    if (z < 3 || d[0] != 0x3e) return 0;
    size_t i = d[1] >= 0x40 && d[1] <= 0x4f ? 2 : 1;
    return d[i] == 0x8a;
}
static void on_trans(qemu_plugin_id_t id, struct qemu_plugin_tb *tb) {
    (void)id;
    size_t n = qemu_plugin_tb_n_insns(tb);
    struct tbi *b = malloc(sizeof *b);
    b->n = n; b->cost = n * c_instr;
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *in = qemu_plugin_tb_get_insn(tb, i);
        const uint8_t *d = qemu_plugin_insn_data(in);
        size_t z = qemu_plugin_insn_size(in);
        if (z == 2 && d[0] == 0xf3 && d[1] == 0x90) b->cost += c_pause;
        if (z == 3 && d[0] == 0x0f && d[1] == 0xae && d[2] == 0xf0) b->cost += c_rmw * 2;
        if (is_locked(d, z)) qemu_plugin_register_vcpu_insn_exec_cb(in, on_lock, QEMU_PLUGIN_CB_NO_REGS, (void *)qemu_plugin_insn_vaddr(in));
        qemu_plugin_register_vcpu_mem_cb(in, is_prefetch(d, z) ? on_prefetch : on_mem, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, (void *)qemu_plugin_insn_vaddr(in));
    }
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_tb, QEMU_PLUGIN_CB_NO_REGS, b);
}

/* ---- system calls ---- */
static ps report_time(struct thr *t) {
    if (t_reported < t->clock) t_reported = t->clock;
    return t_reported;
}
#define EPOCH 100000000000000ll /* the guest's clock begins at 100,000 s, in ns */
static int64_t now_ns(struct thr *t) { return EPOCH + report_time(t) / 1000; }
static void vwait(struct thr *t, uint64_t addr, ps deadline) {
    t->futex = addr; t->deadline = deadline; t->timed_out = 0;
    if (deadline && deadline <= t->clock) { t->timed_out = 1; t->deadline = 0; return; }
    leave(t, VWAIT);
    await(t);
}
static void set_ts(struct thr *t, uint64_t at, int64_t s, int64_t n) {
    int64_t *p = (int64_t *)at;
    t->saved[0] = p[0]; t->saved[1] = p[1]; t->restore = 1;
    t->args[5] = at;
    p[0] = s; p[1] = n;
}
static void on_sys(qemu_plugin_id_t id, unsigned v, int64_t num, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)id; (void)v; (void)a5; (void)a6; (void)a7; (void)a8;
    if (num == 7001) { /* init: phase, ops, number of workers, [lo, hi) not traced */
        g_phase = (void *)a1; g_ops = (void *)a2; nworkers = a3; excl_lo = a4; excl_hi = a5;
        on = 1; me();
        return;
    }
    if (!on) return;
    struct thr *t = me();
    t->args[0] = a1; t->args[1] = a2; t->args[2] = a3; t->args[3] = a4;
    t->restore = 0;
    switch (num) {
    case 7002: { /* a worker is ready */
        t->worker = a1;
        if (++arrived < nworkers) { vwait(t, 1, 0); break; }
        for (struct page *p = pages; p; p = p->next)
            for (int i = 0; i < 64; i++) {
                struct line *l = &p->l[i];
                l->owner = -1;
                memset(l->sh, l->touched && par[TOUCHED].v ? 0xff : 0, sizeof l->sh);
                l->touched = 0;
            }
        for (int i = 0; i < nT; i++)
            if (T[i].state == VWAIT && T[i].futex == 1 && T[i].worker >= 0) { T[i].state = RUN; T[i].clock = t->clock + rnd() % NS(1000); }
        phase = 1; t_start = t->clock; *g_phase = 1;
        t->limit = t->clock;
        break;
    }
    case 7003: fprintf(stderr, "mark %ld: clock %ld ns\n", (long)a1, (long)(t->clock / 1000)); break;
    case 7010: t->clock += NS(8); *(uint64_t *)a1 = report_time(t) / 1000 * 3 + 12345678; break;
    case SYS_clock_gettime: case SYS_getcpu: case SYS_gettimeofday: case SYS_time:
        t->clock += NS(a1 == 6 ? 4 : 22); break;
    case SYS_sched_getaffinity: t->clock += NS(200); break;
    case SYS_sched_yield: t->clock += NS(par[SYS].v); break;
    case SYS_nanosleep: case SYS_clock_nanosleep: {
        uint64_t at = num == SYS_nanosleep ? a1 : a3;
        int64_t *p = (int64_t *)at, ns = p[0] * 1000000000 + p[1];
        ps end = (num == SYS_clock_nanosleep && (a2 & 1)) ? (ns - EPOCH) * 1000 : t->clock + ns * 1000;
        vwait(t, 0, end > t->clock ? end : t->clock + 1);
        set_ts(t, at, 0, 0);
        break;
    }
    case SYS_futex: {
        int op = a2 & FUTEX_CMD_MASK;
        if (op == FUTEX_WAKE || op == FUTEX_WAKE_BITSET) {
            t->clock += NS(par[SYS].v);
            int n = a3;
            pthread_mutex_lock(&big);
            /* the one that has waited longest: the lowest clock */
            while (n > 0) {
                struct thr *w = 0;
                for (int i = 0; i < nT; i++)
                    if (T[i].state == VWAIT && T[i].futex == a1 && (!w || T[i].clock < w->clock)) w = &T[i];
                if (!w) break;
                t->clock += NS(par[WAKECOST].v);
                w->state = RUN; w->deadline = 0;
                ps at = t->clock + NS(par[WAKELAT].v);
                if (w->clock < at) w->clock = at;
                if (t->limit > at) t->limit = at;
                n--;
            }
            pthread_mutex_unlock(&big);
        } else if (op == FUTEX_WAIT || op == FUTEX_WAIT_BITSET) {
            if (!(a2 & FUTEX_PRIVATE_FLAG)) { leave(t, REAL); break; } /* join: the kernel wakes */
            ps end = 0;
            t->clock += NS(par[SYS].v);
            if (a4) {
                int64_t *p = (int64_t *)a4, ns = p[0] * 1000000000 + p[1];
                if (op == FUTEX_WAIT) end = t->clock + ns * 1000;
                else end = (ns - EPOCH) * 1000;
                if (end <= t->clock) end = t->clock + 1;
            }
            volatile uint32_t *word = (void *)a1;
            int timed = 0;
            while (*word == (uint32_t)a3) {
                vwait(t, a1, end);
                if (t->timed_out) { timed = 1; break; }
            }
            if (timed && *word == (uint32_t)a3) set_ts(t, a4, 0, 0);
        } else fprintf(stderr, "futex op %d\n", op);
        break;
    }
    case SYS_exit_group: _exit((int)a1); /* QEMU would wait for threads that have not the token */
    case SYS_exit:
        if (par[DEBUG].v) fprintf(stderr, "exit %d\n", t->id);
        leave(t, DEAD);
        break;
    case SYS_poll: case SYS_ppoll: case SYS_read: case SYS_epoll_wait: case SYS_wait4: break;
    case SYS_membarrier: t->clock += NS(5000); break;
    default: t->clock += NS(par[SYS].v * 3); if (par[DEBUG].v > 1) fprintf(stderr, "sys %ld\n", (long)num);
    }
}
static void on_sysret(qemu_plugin_id_t id, unsigned v, int64_t num, int64_t ret) {
    (void)id; (void)v;
    if (!on || !self) return;
    struct thr *t = self;
    if (t->state == REAL) { enter(t); }
    if (t->restore) { int64_t *p = (int64_t *)t->args[5]; p[0] = t->saved[0]; p[1] = t->saved[1]; t->restore = 0; }
    switch (num) {
    case SYS_clock_gettime: {
        if (t->args[0] == 2 || t->args[0] == 3 || ret != 0) break;
        int64_t ns = now_ns(t), *p = (int64_t *)t->args[1];
        if (t->args[0] == 5 || t->args[0] == 6) { int64_t k = par[TICK].v; ns -= ns % k; }
        p[0] = ns / 1000000000; p[1] = ns % 1000000000;
        break;
    }
    case SYS_sched_getaffinity:
        if (ret > 0) { uint8_t *m = (void *)t->args[2]; for (int i = 0; i < ret * 8 && i < (int64_t)t->args[1] * 8; i++) { uint8_t b = 1 << (i & 7); if (i < par[NCPU].v) m[i >> 3] |= b; else m[i >> 3] &= ~b; } }
        break;
    case SYS_getcpu: if (t->args[0]) *(uint32_t *)t->args[0] = t->id; break;
    }
    /* not before the call: a futex's word must not change between the check and the real call */
    if (t->clock > t->limit) resched(t);
}

/* ---- the report ---- */
struct hot { uint64_t line; struct line *l; uint64_t n; };
static int by_n(const void *a, const void *b) { const struct hot *x = a, *y = b; return x->n < y->n ? 1 : x->n > y->n ? -1 : 0; }
static int by_ev(const void *a, const void *b) { const struct ev *x = a, *y = b; uint64_t m = x->n[0] + x->n[1] + x->n[2], n = y->n[0] + y->n[1] + y->n[2]; return m < n ? 1 : m > n ? -1 : 0; }
static int by_pc(const void *a, const void *b) { const struct ev *x = a, *y = b; return x->pc < y->pc ? -1 : x->pc > y->pc; }
static void finish(void) {
    uint64_t ops = sum_ops() - ops0;
    double dt = (t_reported - t_meas) / 1000.0;
    uint64_t s[2][7] = {{0}}; ps st[2] = {0};
    int others = 0;
    for (int i = 0; i < nT; i++) {
        struct thr *t = &T[i]; int k = t->worker < 0;
        others += k;
        uint64_t x[7] = {t->instr, t->acc, t->rmiss, t->smiss, t->wxfer, t->rmwx, t->rmw};
        for (int j = 0; j < 7; j++) s[k][j] += x[j];
        st[k] += t->stall;
    }
    fprintf(out, "{\"n\":%d,\"ops\":%lu,\"ns\":%.0f,\"mops\":%.3f", nworkers, (unsigned long)ops, dt, ops / dt * 1000);
    const char *name[] = {"workers", "others"};
    for (int k = 0; k < 2; k++)
        fprintf(out, ",\"%s\":{\"instr\":%lu,\"acc\":%lu,\"rmiss\":%lu,\"smiss\":%lu,\"wxfer\":%lu,\"rmwx\":%lu,\"rmw\":%lu,\"stall_ns\":%.0f}", name[k],
            s[k][0], s[k][1], s[k][2], s[k][3], s[k][4], s[k][5], s[k][6], st[k] / 1000.0);
    fprintf(out, ",\"hot\":[");
    size_t cap = 1024, n = 0; struct hot *h = malloc(cap * sizeof *h);
    for (struct page *p = pages; p; p = p->next) for (int i = 0; i < 64; i++) {
        struct line *l = &p->l[i];
        if (l->rm + l->wx + l->sm == 0) continue;
        if (n == cap) h = realloc(h, (cap *= 2) * sizeof *h);
        h[n++] = (struct hot){p->no << 6 | i, l, l->rm + l->wx};
    }
    qsort(h, n, sizeof *h, by_n);
    size_t m = 0; for (size_t i = 0; i < EV; i++) if (ev[i].pc) m++;
    struct ev *e = malloc(m * sizeof *e + 1); m = 0; for (size_t i = 0; i < EV; i++) if (ev[i].pc) e[m++] = ev[i];
    qsort(e, m, sizeof *e, by_ev);
    for (size_t i = 0; i < n && i < 8; i++) {
        fprintf(out, "%s{\"line\":\"%lx\",\"rm\":%u,\"sm\":%u,\"wx\":%u,\"pcs\":[", i ? "," : "", h[i].line << 6, h[i].l->rm, h[i].l->sm, h[i].l->wx);
        int k = 0;
        for (size_t j = 0; j < m && k < 8; j++) if (e[j].line == h[i].line) fprintf(out, "%s[\"%lx\",%u,%u,%u]", k++ ? "," : "", e[j].pc, e[j].n[0], e[j].n[1], e[j].n[2]);
        fprintf(out, "]}");
    }
    fprintf(out, "],\"lines\":%zu,\"pcs\":[", n);
    /* by place in the code, over all lines */
    qsort(e, m, sizeof *e, by_pc);
    size_t r = 0;
    for (size_t i = 0; i < m; i++) {
        if (r && e[r - 1].pc == e[i].pc) { for (int k = 0; k < 3; k++) e[r - 1].n[k] += e[i].n[k]; e[r - 1].stall += e[i].stall; }
        else e[r++] = e[i];
    }
    qsort(e, r, sizeof *e, by_ev);
    for (size_t i = 0; i < r && i < 40; i++) fprintf(out, "%s[\"%lx\",%u,%u,%u,%.0f]", i ? "," : "", e[i].pc, e[i].n[0], e[i].n[1], e[i].n[2], e[i].stall / 1000.0);
    fprintf(out, "],\"other_threads\":%d}\n", others);
    fflush(out);
    free(h); free(e);
}
PUBLIC int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv) {
    (void)info;
    out = stdout;
    for (int i = 0; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        if (!eq) continue;
        if (!strncmp(argv[i], "out=", 4)) { out = fopen(eq + 1, "a"); continue; }
        int known = 0;
        for (size_t j = 0; j < sizeof par / sizeof *par; j++)
            if (strlen(par[j].name) == (size_t)(eq - argv[i]) && !strncmp(par[j].name, argv[i], eq - argv[i])) { par[j].v = atof(eq + 1); known = 1; }
        if (!known) { fprintf(stderr, "unknown: %s\n", argv[i]); return 1; }
    }
    c_instr = NS(par[INSTR].v); c_rmw = NS(par[RMW].v); c_pause = NS(par[PAUSE].v); c_xfer = NS(par[XFER].v);
    c_sread = NS(par[SREAD].v); c_occw = NS(par[OCC_W].v); c_occr = NS(par[OCC_R].v);
    rng += (uint64_t)par[SEED].v * 0x9E3779B97F4A7C15ull;
    ev = mmap(0, sizeof *ev * EV, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_trans);
    qemu_plugin_register_vcpu_syscall_cb(id, on_sys);
    qemu_plugin_register_vcpu_syscall_ret_cb(id, on_sysret);
    return 0;
}
