package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"stele.dev/stele/eventlog"
	"stele.dev/stele/eventlog/backup/stores"
)

// FormatVersion is the version of the manifest that this program writes, and the highest that it reads.
const FormatVersion = 1

// Position is an [eventlog.Head] of a log that is known, as JSON.
type Position struct {
	Epoch    uint64        `json:"epoch"`
	Revision uint64        `json:"revision"`
	Hash     eventlog.Hash `json:"-"`
	// HashText is Hash in hexadecimal; empty for the position before the first batch.
	HashText string `json:"hash"`
}

// PositionOf returns the position of a head.
func PositionOf(h eventlog.Head) Position {
	p := Position{Epoch: h.Epoch, Revision: h.Revision, Hash: h.Hash}
	if h.Revision > 0 {
		p.HashText = h.Hash.String()
	}
	return p
}

// Head returns the position as a head of a log.
func (p Position) Head(log eventlog.ID) eventlog.Head {
	return eventlog.Head{Log: log, Epoch: p.Epoch, Revision: p.Revision, Hash: p.Hash}
}

// UnmarshalJSON implements [json.Unmarshaler]. It refuses a hash of the wrong length.
func (p *Position) UnmarshalJSON(text []byte) error {
	type plain Position
	if err := json.Unmarshal(text, (*plain)(p)); err != nil {
		return err
	}
	if p.HashText == "" && p.Revision == 0 {
		return nil
	}
	sum, err := hex.DecodeString(p.HashText)
	if err != nil || len(sum) != len(p.Hash) {
		return fmt.Errorf("%q is not a hash", p.HashText)
	}
	p.Hash = eventlog.Hash(sum)
	return nil
}

// File is a file of a backup.
type File struct {
	// Name is the file's name in the data directory, such as segments/….log. Files of batches have none there.
	Name string `json:"name"`
	// Stored is the file's name in the store, below the folder of the log.
	Stored string `json:"stored"`
	// Size and SHA256 are of what is stored.
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// PlainSize and PlainSHA256 are of the content before encryption. They are the same without encryption.
	PlainSize   int64  `json:"plainSize"`
	PlainSHA256 string `json:"plainSHA256"`
}

// The kinds of a [Part].
const (
	SegmentPart = "segment" // the files of a segment
	BatchesPart = "batches" // one file of batches, see [WriteBatch]
)

// Part is a part of the log between two positions.
type Part struct {
	Kind   string   `json:"kind"`
	Before Position `json:"before"`
	After  Position `json:"after"`
	// First and Last are the log times of the first and the last batch, as they were written.
	First time.Time `json:"firstTime"`
	Last  time.Time `json:"lastTime"`
	// ClockSets are the corrections of log time in this part.
	ClockSets []eventlog.ClockSet `json:"clockSets,omitempty"`
	Files     []File              `json:"files"`
}

// Manifest says what is in a backup. It is written once, after all files.
type Manifest struct {
	Format  int       `json:"format"`
	Log     string    `json:"log"` // the log's ID
	Created time.Time `json:"created"`
	By      string    `json:"createdBy"`
	// Head is where the backup ends, and HeadTime the log time there.
	Head     Position  `json:"head"`
	HeadTime time.Time `json:"headTime"`
	// Parts are in the order of the log. Each continues the one before, but for one gap behind the first batch if the
	// server has forgotten older ones.
	Parts       []Part       `json:"parts"`
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// Floors are the oldest revisions at which objects can be read, by plural.group, if not all can be.
	Floors map[string]uint64 `json:"floors,omitempty"`
	// Keys are the files of the data directory that clients trust. Without them a restore makes new keys.
	Keys []File `json:"keys,omitempty"`
	// Recipients are the age recipients that can decrypt the files; empty if they are not encrypted.
	Recipients []string `json:"recipients,omitempty"`
	// NewBytes is the size of the files that this backup added to the store.
	NewBytes int64 `json:"newBytes"`
	// Sum is the SHA-256 of the manifest with an empty Sum, in hexadecimal.
	Sum string `json:"sum"`

	id eventlog.ID
}

// Checkpoint is a checkpoint of the projections at a revision.
type Checkpoint struct {
	Revision uint64 `json:"revision"`
	File     File   `json:"file"`
}

// LogID returns the ID of the log.
func (m *Manifest) LogID() eventlog.ID { return m.id }

// Name returns the manifest's name, by which users choose a backup: the revision and the time of its creation.
func (m *Manifest) Name() string {
	return fmt.Sprintf("%020d-%s", m.Head.Revision, m.Created.UTC().Format("20060102T150405.000Z"))
}

// Encrypted reports whether the files of the backup are encrypted.
func (m *Manifest) Encrypted() bool { return len(m.Recipients) > 0 }

// Oldest returns the position before the oldest batch that the backup has, besides the first one: the zero Position
// if it has all.
func (m *Manifest) Oldest() Position {
	for i, p := range m.Parts {
		if i > 0 && p.Before.Revision != m.Parts[i-1].After.Revision {
			return p.Before
		}
	}
	return Position{}
}

// Files returns all files of the backup.
func (m *Manifest) Files() []File {
	var files []File
	for _, p := range m.Parts {
		files = append(files, p.Files...)
	}
	for _, c := range m.Checkpoints {
		files = append(files, c.File)
	}
	return append(files, m.Keys...)
}

// Size returns the size in bytes of all files in the store.
func (m *Manifest) Size() (sum int64) {
	for _, f := range m.Files() {
		sum += f.Size
	}
	return sum
}

const backupsFolder = "backups"

// storedAs returns the name of the manifest in the store.
func (m *Manifest) storedAs() string { return path.Join(m.Log, backupsFolder, m.Name()+".json") }

// encode returns the manifest's JSON, with its sum.
func (m *Manifest) encode() ([]byte, error) {
	m.Sum = ""
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	m.Sum = hex.EncodeToString(sum[:])
	return json.MarshalIndent(m, "", "  ")
}

// DecodeManifest decodes a manifest and checks its sum, its names and the order of its parts.
func DecodeManifest(text []byte) (*Manifest, error) {
	m := &Manifest{}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, fmt.Errorf("it is not a manifest of a backup: %w", err)
	}
	if version.Format > FormatVersion {
		return nil, fmt.Errorf("a newer version of stele wrote it (format %d, this one reads %d); use that version", version.Format, FormatVersion)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a format has its fields
	if err := decoder.Decode(m); err != nil {
		return nil, fmt.Errorf("it is not a manifest of a backup: %w", err)
	}
	if again, err := m.encode(); err != nil || !bytes.Equal(again, text) {
		return nil, errors.Join(errors.New("its content does not match its checksum: it is damaged"), err)
	}
	return m, m.check()
}

// parseID parses the ID of a log.
func parseID(text string) (id eventlog.ID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("%q is not the id of a log", text)
	}
	return eventlog.ID(b), nil
}

// safeName matches the names of files in a store and in a data directory.
var safeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.=+-]*(/[A-Za-z0-9_][A-Za-z0-9_.=+-]*)*$`)

// check returns an error if the manifest contradicts itself. Its names are those of files below a folder.
func (m *Manifest) check() error {
	var err error
	if m.id, err = parseID(m.Log); err != nil {
		return err
	}
	for _, f := range m.Files() {
		for _, name := range []string{f.Name, f.Stored} {
			if !safeName.MatchString(name) || !filepath.IsLocal(name) {
				return fmt.Errorf("it names a file %q", name)
			}
		}
		if f.Size < 0 || f.PlainSize < 0 || len(f.SHA256) != 2*sha256.Size || len(f.PlainSHA256) != 2*sha256.Size {
			return fmt.Errorf("size or checksum of %s are missing", f.Name)
		}
	}
	if len(m.Parts) == 0 || m.Parts[0].Before.Revision != 0 {
		return errors.New("it does not have the beginning of the log")
	}
	at, gaps := Position{}, 0
	for i, p := range m.Parts {
		if p.Before != at {
			if gaps++; gaps > 1 || i != 1 || p.Before.Revision < at.Revision {
				return fmt.Errorf("revisions %d to %d are missing in it", at.Revision+1, p.Before.Revision)
			}
		}
		if p.Kind == SegmentPart && i > 0 && m.Parts[i-1].Kind == BatchesPart && m.Parts[i-1].After.Revision != 1 {
			return fmt.Errorf("its segment after revision %d follows batches that are in no segment", p.Before.Revision)
		}
		if p.After.Revision <= p.Before.Revision || len(p.Files) == 0 || p.Kind != SegmentPart && p.Kind != BatchesPart {
			return fmt.Errorf("its part after revision %d is not valid", p.Before.Revision)
		}
		at = p.After
	}
	if at != m.Head {
		return fmt.Errorf("its parts end at revision %d, not at %d", at.Revision, m.Head.Revision)
	}
	return nil
}

// Found is a manifest in a store, or the reason why it cannot be used.
type Found struct {
	Log      string // the id of the log, from the name of the folder
	Name     string // of the backup
	Manifest *Manifest
	Err      error
}

// List returns the manifests in a store, the oldest first, ordered by log. A manifest that cannot be used has an error; List itself
// fails only if the store cannot be read.
func List(ctx context.Context, store stores.Store, p stores.Patience) ([]Found, error) {
	return list(ctx, stores.WithPatience(store, p))
}

func list(ctx context.Context, store *stores.Patient) ([]Found, error) {
	entries, err := store.List(ctx, "")
	if err != nil {
		return nil, err
	}
	var found []Found
	for _, e := range entries {
		log, rest, _ := strings.Cut(e.Name, "/")
		name, ok := strings.CutPrefix(rest, backupsFolder+"/")
		name, json := strings.CutSuffix(name, ".json")
		if !ok || !json || strings.Contains(name, "/") {
			continue
		}
		f := Found{Log: log, Name: name}
		f.Manifest, f.Err = readManifest(ctx, store, e.Name)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case f.Err == nil && (f.Manifest.Name() != name || f.Manifest.Log != log):
			f.Err = fmt.Errorf("it is the manifest of backup %s of log %s under another name", f.Manifest.Name(), f.Manifest.Log)
		}
		if f.Err != nil {
			f.Manifest, f.Err = nil, fmt.Errorf("%s: %w", e.Name, f.Err)
		}
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b Found) int {
		return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(created(a), created(b)), cmp.Compare(a.Name, b.Name))
	})
	return found, nil
}

// created returns the time in the name of a backup: a later epoch may end at a lower revision.
func created(f Found) string {
	_, time, _ := strings.Cut(f.Name, "-")
	return time
}

// maxManifest bounds the size of a manifest: a million files.
const maxManifest = 512 << 20

func readManifest(ctx context.Context, store *stores.Patient, name string) (*Manifest, error) {
	var text []byte
	err := store.Read(ctx, name, func(r io.Reader) (err error) {
		text, err = io.ReadAll(io.LimitReader(r, maxManifest))
		return err
	})
	if err != nil {
		return nil, err
	}
	return DecodeManifest(text)
}

// Choose returns the manifest of the backup with the name, or the newest one if the name is empty. It fails if the
// store has backups of several logs and neither the name nor log, the beginning of a log's id, selects one.
func Choose(found []Found, name, log string) (*Manifest, error) {
	var chosen *Manifest
	var broken error
	logs := map[string]bool{}
	for _, f := range found {
		if !strings.HasPrefix(f.Log, log) || name != "" && f.Name != strings.TrimSuffix(path.Base(name), ".json") {
			continue
		}
		logs[f.Log] = true
		chosen, broken = f.Manifest, f.Err
	}
	switch {
	case broken != nil && name == "" && len(logs) == 1:
		return nil, fmt.Errorf("the newest backup cannot be used: %w; choose an older one with --backup, `stele backup list` shows them", broken)
	case len(logs) == 1 && broken != nil:
		return nil, broken
	case len(logs) > 1:
		return nil, fmt.Errorf("there are backups of %d logs: %s; choose one with --log", len(logs), strings.Join(slices.Sorted(maps.Keys(logs)), ", "))
	case chosen != nil:
		return chosen, nil
	case name != "":
		return nil, fmt.Errorf("there is no backup %s; `stele backup list` shows those that are there", name)
	case log != "":
		return nil, fmt.Errorf("there is no backup of a log %s; `stele backup list` shows those that are there", log)
	}
	return nil, errors.New("there is no complete backup; `stele backup create` makes one")
}
