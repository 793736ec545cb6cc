package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"stele.dev/stele/eventlog"
)

// The files of the write-ahead log are smaller than etcd's, of 64 MB, because a start reads them as a whole.
func init() { wal.SegmentSizeBytes = 8 << 20 }

// EmbedOptions for [Embed].
type EmbedOptions struct {
	// Dir is etcd's folder. It is created if it does not exist. The caller holds a lock on it, so that
	// no other process uses it.
	Dir string
	// Quota is the maximum size of etcd's database in bytes; [DefaultQuota] if 0. Appends are refused
	// when 80 % of it are in use, and those that free space at 90 %.
	Quota int64
	// MinFree is how much disk space must stay free, in bytes; [DefaultMinFree] if 0. Appends are refused
	// below it, and those that free space below half of it.
	MinFree uint64
	// Used says that writes were acknowledged from this folder before. An empty folder, or a log without
	// entries, is then an error and not a first start.
	Used bool
	// Check checks the pages of etcd's database, for example by [CheckDatabase] in a process of its own,
	// and returns [Damaged] if there is a problem. If it is nil, they are not checked.
	Check func(ctx context.Context, file string) error
	// Prefix is the prefix of the log's keys; [DefaultPrefix] if empty.
	Prefix string
	// Log receives etcd's errors; nil discards them.
	Log *slog.Logger
}

// DefaultQuota and DefaultMinFree are the defaults of [EmbedOptions], in bytes.
const (
	DefaultQuota   = 8 << 30
	DefaultMinFree = 256 << 20
)

// Embed starts a single etcd member in this process and keeps the log in it. The member has no network
// listeners: its only client is the returned backend, which is therefore exclusive. Acknowledged appends
// have been synced to disk.
func Embed(ctx context.Context, o EmbedOptions) (*Backend, error) {
	if o.Quota == 0 {
		o.Quota = DefaultQuota
	}
	if o.MinFree == 0 {
		o.MinFree = DefaultMinFree
	}
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
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
	// The backend keeps to the quota by itself: etcd compares it with the size of the file, which does not
	// shrink, and refuses all writes from then on.
	cfg.QuotaBackendBytes = -1
	// A start reads all files of the write-ahead log, several times. Only those behind the newest snapshot are needed, and
	// etcd keeps the others only up to this number.
	cfg.MaxWalFiles = 2
	// Old values of the head; Trim compacts by itself.
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
	space := &room{dir: o.Dir, quota: o.Quota, minFree: o.MinFree, log: o.Log, store: etcd.Server.Backend(), opened: time.Now()}
	space.readDisk()
	b.room, b.usage = space.take, space.usage
	b.compact = func(ctx context.Context, revision int64) error {
		if err := compactEmbedded(ctx, client, revision); err != nil {
			return err
		}
		return countFree(ctx, client, o.Prefix+"/trimmed", etcd)
	}
	b.shrink = func() error { return shrinkEmbedded(etcd, o) }
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watched sync.WaitGroup
	b.close = func() error {
		stop()
		watched.Wait()
		err := client.Close()
		etcd.Close()
		if errors.Is(err, context.Canceled) {
			err = nil
		}
		return err
	}
	if err := b.makeRoom(ctx, etcd, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err), b.Close())
	}
	if space.files, err = openFiles(o.Dir, o.Log); err != nil {
		return nil, errors.Join(fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err), b.Close())
	}
	space.files.reserve()
	watched.Go(func() { space.files.watch(watching) })
	return b, nil
}

// embeddedMaxRequest is far above the API's limit of 3 MiB for a request's body: an event can hold an
// object and the request that changed it.
const embeddedMaxRequest = 16 << 20

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
