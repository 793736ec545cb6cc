package format

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

//go:generate go run stele.dev/stele/policy/format/internal/componentroles controlplane/controlplane.cue
//go:generate ./former.sh
//go:generate go run stele.dev/stele/policy/format/internal/bundledoc policy.cue internal/bundledoc/examples ../../docs/BUNDLE.md

// former lists the digests of files of earlier versions of the program, one a line.
//
//go:embed former.txt
var former string

// CopyState says how a module's copy of a file differs from the program's own.
type CopyState string

// The states of a copy.
const (
	// Missing: the module has no such file.
	Missing CopyState = "missing"
	// Older: the file is that of an earlier version of the program.
	Older CopyState = "older"
	// Changed: the file is of no version that this program knows. Somebody changed it, or it is of a newer version.
	Changed CopyState = "changed"
	// Unknown: the program has no such file.
	Unknown CopyState = "unknown"
)

// Copy is a file below cue.mod/pkg/stele.dev/policy that is not as the program has it.
type Copy struct {
	Path  string // in the module
	State CopyState
}

// Copies compares the copies in a module with the program's own files. It returns those that differ, sorted by path; none if
// the copies are current. An unreadable file is an error.
func Copies(module fs.FS) ([]Copy, error) {
	own := Files()
	found := map[string]CopyState{}
	for p, data := range own {
		text, err := fs.ReadFile(module, p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			found[p] = Missing
		case err != nil:
			return nil, err
		case !bytes.Equal(text, data):
			found[p] = stateOf(text)
		}
	}
	err := fs.WalkDir(module, strings.TrimSuffix(folder, "/"), func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !d.IsDir() && own[p] == nil {
			found[p] = Unknown
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	copies := make([]Copy, 0, len(found))
	for _, p := range slices.Sorted(maps.Keys(found)) {
		copies = append(copies, Copy{p, found[p]})
	}
	return copies, nil
}

func stateOf(text []byte) CopyState {
	sum := sha256.Sum256(text)
	if slices.Contains(strings.Fields(former), hex.EncodeToString(sum[:])) {
		return Older
	}
	return Changed
}
