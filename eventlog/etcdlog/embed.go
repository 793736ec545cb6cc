package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"stele.dev/stele/eventlog"
)

// EmbedOptions for [Embed].
type EmbedOptions struct {
	// Dir is etcd's own folder, which nobody else may use at the same time: the
	// caller holds a lock on it. It is created if it does not exist.
	Dir string
	// Quota bounds etcd's database in bytes; 8 GiB if 0. Appends are refused from
	// nine tenths of it on, so that etcd itself never gets there.
	Quota int64
	// MinFree is how much of the disk's space stays unused, in bytes: below,
	// appends are refused. 256 MiB if 0; a write-ahead log segment takes 64 MB.
	MinFree uint64
	// Used says that writes were acknowledged from this folder before. Then a folder that
	// is empty, or has a log without entries, is an error and not a first start.
	Used bool
	// Check looks at the pages of etcd's database, for example by [CheckDatabase] in a
	// process of its own, and returns [Damaged] if something is wrong with them; nil if they
	// are not checked.
	Check func(ctx context.Context, file string) error
	// Prefix of the log's keys; "/stele" if empty.
	Prefix string
	// Log gets etcd's errors; nil for none.
	Log *slog.Logger
}

// Embed starts a single etcd member in this process and keeps the log in it. It
// listens on nothing: its only client is the returned backend, which is therefore
// exclusive. Acknowledged appends have been synced to the disk.
func Embed(ctx context.Context, o EmbedOptions) (*Backend, error) {
	if o.Quota == 0 {
		o.Quota = 8 << 30
	}
	if o.MinFree == 0 {
		o.MinFree = 256 << 20
	}
	if o.Prefix == "" {
		o.Prefix = "/stele"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	cfg := embed.NewConfig()
	cfg.Dir = o.Dir
	cfg.Name = "stele"
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenClientUrls, cfg.ListenPeerUrls = nil, nil
	// Elections have no other candidates to wait for.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	// Raft keeps recent entries in memory, and ours are large.
	cfg.SnapshotCount, cfg.SnapshotCatchUpEntries = 200, 50
	cfg.MaxRequestBytes = embeddedMaxRequest
	cfg.QuotaBackendBytes = o.Quota
	// Only old values of the head are ever compacted.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = "revision", "1000"
	cfg.BackendFreelistType = "map"
	end := &lastWords{said: make(chan error, 1)}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(o.Log, end))
	cfg.WarningApplyDuration = time.Second
	cfg.WarningUnaryRequestDuration = 5 * time.Second

	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	etcd, err := start(ctx, o, cfg, end)
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err)
	}
	client := v3client.New(etcd.Server)
	b := newBackend(client, o.Prefix, eventlog.Limits{Value: embeddedMaxRequest - 1<<10, Exclusive: true})
	disk := diskRoom{dir: o.Dir, min: o.MinFree}
	b.room = func() error {
		if size := etcd.Server.Backend().Size(); size > o.Quota/10*9 {
			return fmt.Errorf("%w: %d bytes of %d are used in %s", eventlog.ErrFull, size, o.Quota, o.Dir)
		}
		return disk.check()
	}
	b.close = func() error {
		err := client.Close()
		etcd.Close()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return err
	}
	return b, nil
}

// embeddedMaxRequest is far above the API's own limit of 3 MiB for a request's
// body: an event can hold an object and the request that led to it.
const embeddedMaxRequest = 16 << 20

// diskRoom looks at the free space of a disk, at most once a second.
type diskRoom struct {
	dir     string
	min     uint64
	checked atomic.Int64 // unix nano
	short   atomic.Bool
}

func (d *diskRoom) check() error {
	now := time.Now().UnixNano()
	if last := d.checked.Load(); now-last > int64(time.Second) && d.checked.CompareAndSwap(last, now) {
		free, err := freeBytes(d.dir)
		d.short.Store(err == nil && free < d.min)
	}
	if d.short.Load() {
		return fmt.Errorf("%w: less than %d MiB are free on the disk of %s", eventlog.ErrFull, d.min>>20, d.dir)
	}
	return nil
}

// start inspects the folder, starts etcd, and waits until it can be written to.
func start(ctx context.Context, o EmbedOptions, cfg *embed.Config, end *lastWords) (*embed.Etcd, error) {
	if err := inspect(o); err != nil {
		return nil, err
	}
	if file := filepath.Join(o.Dir, "member", "snap", "db"); o.Check != nil && fileutil.Exist(file) {
		if err := o.Check(ctx, file); err != nil {
			return nil, err
		}
	}
	etcd, err := startEtcd(ctx, o, cfg, end)
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, o, etcd.Server, etcd.Err(), end.said); err != nil {
		if !errors.As(err, new(lastWord)) { // after which it could not be closed either
			etcd.Close()
		}
		return nil, err
	}
	end.started.Store(true)
	return etcd, nil
}

// startEtcd starts etcd, or returns why it would end the process.
func startEtcd(ctx context.Context, o EmbedOptions, cfg *embed.Config, end *lastWords) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- result{err: fmt.Errorf("etcd panicked: %v", v)}
			}
		}()
		etcd, err := embed.StartEtcd(cfg)
		done <- result{etcd, err}
	}()
	begun := time.Now()
	for {
		select {
		case r := <-done:
			return r.etcd, r.err
		case err := <-end.said:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(waitingEvery):
			o.Log.Warn("etcd is still opening its database", "folder", o.Dir, "for", time.Since(begun).Round(time.Second))
		}
	}
}

// lastWords is what etcd says before it ends the process. Until etcd has started, it
// does not: the caller hears it, and the goroutine that said it is held for ever, as
// it must not go on. After that, it does.
type lastWords struct {
	said    chan error
	started atomic.Bool
}

// lastWord is what etcd said when it gave up.
type lastWord string

func (w lastWord) Error() string { return string(w) }

// OnWrite implements [zapcore.CheckWriteHook].
func (w *lastWords) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := entry.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok {
			text += ": " + err.Error()
		}
	}
	if !w.started.Load() {
		select {
		case w.said <- lastWord(text):
		default: // somebody else was first
		}
		select {}
	}
	if entry.Level == zapcore.FatalLevel {
		os.Exit(1)
	}
	panic("etcd: " + text)
}

// zapTo hands errors of etcd to slog. They are no more than information: what matters
// comes back from the calls, and a single member without TLS or authentication, which
// here is what is wanted, complains a lot. Only what ends the process is an error.
func zapTo(log *slog.Logger, end *lastWords) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", ConsoleSeparator: " "})
	write := func(level slog.Level) zapcore.WriteSyncer {
		return zapcore.AddSync(writerFunc(func(line []byte) (int, error) {
			log.Log(context.Background(), level, "etcd: "+strings.TrimSpace(string(line)))
			return len(line), nil
		}))
	}
	fatal := func(l zapcore.Level) bool { return l >= zapcore.DPanicLevel }
	said := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return fatal(l) && end.started.Load() })
	return zap.New(zapcore.NewTee(
		zapcore.NewCore(encoder, write(slog.LevelInfo), zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zapcore.ErrorLevel && !fatal(l) })),
		zapcore.NewCore(encoder, write(slog.LevelError), said),
	), zap.WithPanicHook(end), zap.WithFatalHook(end))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
