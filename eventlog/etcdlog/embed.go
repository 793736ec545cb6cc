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
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"stele.dev/stele/eventlog"
)

// EmbedOptions for [Embed].
type EmbedOptions struct {
	// Dir is etcd's folder. It is created if it does not exist. The caller holds a lock on it, so that
	// no other process uses it.
	Dir string
	// Quota is the maximum size of etcd's database in bytes; 8 GiB if 0. Appends are refused from 90 %
	// of it on, so that etcd itself never reaches it.
	Quota int64
	// MinFree is how much disk space must stay free, in bytes; 256 MiB if 0. Appends are refused below
	// it. A write-ahead log segment takes 64 MB.
	MinFree uint64
	// Used says that writes were acknowledged from this folder before. An empty folder, or a log without
	// entries, is then an error and not a first start.
	Used bool
	// Check checks the pages of etcd's database, for example by [CheckDatabase] in a process of its own,
	// and returns [Damaged] if there is a problem. If it is nil, they are not checked.
	Check func(ctx context.Context, file string) error
	// Prefix is the prefix of the log's keys; "/stele" if empty.
	Prefix string
	// Log receives etcd's errors; nil discards them.
	Log *slog.Logger
}

// Embed starts a single etcd member in this process and keeps the log in it. The member has no network
// listeners: its only client is the returned backend, which is therefore exclusive. Acknowledged appends
// have been synced to disk.
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
	fatal := &fatalHook{errs: make(chan error, 1)}
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(o.Log, fatal))
	cfg.WarningApplyDuration = time.Second
	cfg.WarningUnaryRequestDuration = 5 * time.Second

	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	etcd, err := start(ctx, o, cfg, fatal)
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
	b.usage = func() eventlog.Usage {
		store := etcd.Server.Backend()
		free, _ := freeBytes(o.Dir) // 0 if unknown
		return eventlog.Usage{
			Used: store.SizeInUse(), Allocated: store.Size(), Limit: o.Quota / 10 * 9, DiskFree: free, DiskLimit: o.MinFree,
		}
	}
	b.compact = func(ctx context.Context, revision int64) error {
		_, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical())
		return err
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

// embeddedMaxRequest is far above the API's limit of 3 MiB for a request's body: an event can hold an
// object and the request that changed it.
const embeddedMaxRequest = 16 << 20

// diskRoom checks the free space of a disk, at most once a second.
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

// start inspects the folder, starts etcd, and waits until etcd accepts writes.
func start(ctx context.Context, o EmbedOptions, cfg *embed.Config, fatal *fatalHook) (*embed.Etcd, error) {
	if err := inspect(o); err != nil {
		return nil, err
	}
	if file := filepath.Join(o.Dir, "member", "snap", "db"); o.Check != nil && fileutil.Exist(file) {
		if err := o.Check(ctx, file); err != nil {
			return nil, err
		}
	}
	etcd, err := startEtcd(ctx, o, cfg, fatal)
	if err != nil {
		return nil, err
	}
	if err := ready(ctx, o, etcd.Server, etcd.Err(), fatal.errs); err != nil {
		if !errors.As(err, new(fatalError)) { // after a fatal error, Close would block
			etcd.Close()
		}
		return nil, err
	}
	fatal.started.Store(true)
	return etcd, nil
}

// startEtcd starts etcd. If etcd tries to end the process, startEtcd returns the reason as an error.
func startEtcd(ctx context.Context, o EmbedOptions, cfg *embed.Config, fatal *fatalHook) (*embed.Etcd, error) {
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
		case err := <-fatal.errs:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(waitingEvery):
			o.Log.Warn("etcd is still opening its database", "folder", o.Dir, "for", time.Since(begun).Round(time.Second))
		}
	}
}

// fatalHook receives the log entries after which etcd would end the process. While etcd starts, it sends
// the first one to errs instead, and blocks the goroutine for ever, as that must not go on. Once etcd has
// started, it ends the process.
type fatalHook struct {
	errs    chan error
	started atomic.Bool
}

// fatalError is the message with which etcd would have ended the process.
type fatalError string

func (e fatalError) Error() string { return string(e) }

// OnWrite implements [zapcore.CheckWriteHook].
func (h *fatalHook) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	text := entry.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok {
			text += ": " + err.Error()
		}
	}
	if !h.started.Load() {
		select {
		case h.errs <- fatalError(text):
		default: // another one was first
		}
		select {}
	}
	if entry.Level == zapcore.FatalLevel {
		os.Exit(1)
	}
	panic("etcd: " + text)
}

// zapTo returns a logger that writes etcd's errors to log, at level Info: the calls return the errors that
// matter, and a single member without TLS or authentication logs many others. Only what ends the process
// is logged as an error.
func zapTo(log *slog.Logger, hook *fatalHook) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", ConsoleSeparator: " "})
	write := func(level slog.Level) zapcore.WriteSyncer {
		return zapcore.AddSync(writerFunc(func(line []byte) (int, error) {
			log.Log(context.Background(), level, "etcd: "+strings.TrimSpace(string(line)))
			return len(line), nil
		}))
	}
	fatal := func(l zapcore.Level) bool { return l >= zapcore.DPanicLevel }
	ending := zap.LevelEnablerFunc(func(l zapcore.Level) bool { return fatal(l) && hook.started.Load() })
	return zap.New(zapcore.NewTee(
		zapcore.NewCore(encoder, write(slog.LevelInfo), zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zapcore.ErrorLevel && !fatal(l) })),
		zapcore.NewCore(encoder, write(slog.LevelError), ending),
	), zap.WithPanicHook(hook), zap.WithFatalHook(hook))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
