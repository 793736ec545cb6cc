package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"stele.dev/stele/core/keep/encryption"
	"stele.dev/stele/eventlog"
	"stele.dev/stele/limits/reload"
)

// Encryption says how contents are encrypted where they are stored. See package encryption.
type Encryption struct {
	// File is an EncryptionConfiguration; "" for the plane's own, which encrypts Secrets of logs that began with it.
	File string
	// Reload reads File again when it changes, every ReloadEvery; a minute if that is 0.
	Reload      bool
	ReloadEvery time.Duration
}

// openEncryption opens the keys of the log.
func (p *Plane) openEncryption(ctx context.Context) error {
	c := &p.config.Encryption
	if err := p.Log.LearnLevel(ctx); err != nil {
		return err
	}
	local, err := p.localKey(ctx)
	if err != nil || local == "" && c.File == "" {
		return err
	}
	o := encryption.Options{File: c.File, LocalFile: local, Reload: c.Reload, Logger: p.config.Logger}
	if c.File != "" && c.Reload {
		metrics := reload.NewMetrics("encryption")
		o.Outcome = metrics.Outcome(p.config.Logger, "encryption-provider-config", c.File)
		if err := p.config.Metrics.Register(metrics); err != nil {
			return err
		}
	}
	if p.encryption, err = encryption.Open(o); err != nil {
		return err
	}
	p.onClose(func() error { p.encryption.Close(); return nil })
	p.Log.SetKeys(p.encryption)
	return p.encryption.Wait(ctx)
}

// localKey returns the file of the local key, "" if there is none. It is made for a log that is new, and, by the same authority again,
// for one in which contents may be encrypted.
func (p *Plane) localKey(ctx context.Context) (string, error) {
	file := encryption.LocalIn(p.pki())
	switch _, err := os.Lstat(file); {
	case err == nil:
		return file, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	case p.authority == nil:
		return "", nil
	}
	head, err := p.Log.ReadHead(ctx)
	if err != nil {
		return "", err
	}
	if head.Revision > 1 && p.Log.Level() < eventlog.SealingLevel {
		return "", nil
	}
	secret, err := p.authority.Secret()
	if err == nil {
		err = encryption.MakeLocal(file, secret)
	}
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) { // the folder of the keys is mounted for reading
		file = encryption.LocalIn(p.path("pki"))
		err = encryption.MakeLocal(file, secret)
	}
	if err != nil {
		return "", fmt.Errorf("make the key that encrypts Secrets: %w", err)
	}
	return file, nil
}

// highestLevel returns the highest format level to which this plane raises the log; 0 for no limit. Without keys none is needed
// that former versions do not read.
func (p *Plane) highestLevel() uint32 {
	if p.encryption == nil && p.Log.Reads() == eventlog.SealingLevel {
		return cmp.Or(p.config.Replicas.Level, eventlog.SealingLevel-1)
	}
	return p.config.Replicas.Level
}

// contentKeys returns the keys for logs beside the log of record; nil for none.
func (p *Plane) contentKeys() eventlog.Keys {
	return p.encryption.OfLog()
}

// runEncryption reads the file again when it changes, until the context ends.
func (p *Plane) runEncryption(ctx context.Context) error {
	return p.encryption.Run(ctx, cmp.Or(p.config.Encryption.ReloadEvery, time.Minute))
}
