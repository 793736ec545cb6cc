package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

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
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapTo(o.Log))
	cfg.WarningApplyDuration = time.Second
	cfg.WarningUnaryRequestDuration = 5 * time.Second

	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		etcd.Close()
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, err)
	case <-ctx.Done():
		etcd.Close()
		return nil, fmt.Errorf("start embedded etcd in %s: %w", o.Dir, ctx.Err())
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

// zapTo hands errors of etcd to slog. They are no more than information: what matters
// comes back from the calls, and a single member without TLS or authentication, which
// here is what is wanted, complains a lot. Only what ends the process is an error.
func zapTo(log *slog.Logger) *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", ConsoleSeparator: " "})
	write := func(level slog.Level) zapcore.WriteSyncer {
		return zapcore.AddSync(writerFunc(func(line []byte) (int, error) {
			log.Log(context.Background(), level, "etcd: "+strings.TrimSpace(string(line)))
			return len(line), nil
		}))
	}
	fatal := func(l zapcore.Level) bool { return l >= zapcore.DPanicLevel }
	return zap.New(zapcore.NewTee(
		zapcore.NewCore(encoder, write(slog.LevelInfo), zap.LevelEnablerFunc(func(l zapcore.Level) bool { return l >= zapcore.ErrorLevel && !fatal(l) })),
		zapcore.NewCore(encoder, write(slog.LevelError), zap.LevelEnablerFunc(fatal)),
	))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
