package backup_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"stele.dev/stele/eventlog/backup"
	"stele.dev/stele/eventlog/backup/stores"
)

// A signed backup says what its author has read. What an unsigned manifest of the place says of parts does not become signed.
func TestASignedBackupTakesNothingFromUnsignedManifests(t *testing.T) {
	p := newPlant(t)
	p.grow(40)
	dir := t.TempDir()
	store := stores.NewFolder(dir)
	small := func(o *backup.CreateOptions) { o.BatchesBytes = 1000 }
	honest := p.backup(store, small)
	file := filepath.Join(dir, honest.Log, "backups", honest.Name()+".json")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	forged, err := backup.DecodeManifest(text)
	require.NoError(t, err)
	for i := range forged.Parts {
		forged.Parts[i].Last = forged.Parts[i].Last.Add(-time.Hour)
	}
	forged.Sum = ""
	text, err = json.MarshalIndent(forged, "", "  ")
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	forged.Sum = hex.EncodeToString(sum[:])
	text, err = json.MarshalIndent(forged, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text, 0o600))

	signed := func(o *backup.CreateOptions) {
		small(o)
		o.Sign = func(manifest []byte) ([]byte, error) { sum := sha256.Sum256(manifest); return sum[:], nil }
		o.Verify = func(manifest, signature []byte) error {
			if sum := sha256.Sum256(manifest); !bytes.Equal(sum[:], signature) {
				return errors.New("it is by another key")
			}
			return nil
		}
	}
	require.Greater(t, len(honest.Parts), 2)
	assert.NotEqual(t, honest.Parts, p.backup(store, small).Parts, "the forged manifest is not used at all")
	first := p.backup(store, signed)
	assert.Equal(t, honest.Parts, first.Parts)
	second := p.backup(store, signed)
	assert.Equal(t, honest.Parts, second.Parts)
	assert.Empty(t, verify(t, store, second).Problems)
}
