// Package format contains the CUE packages that come with the program: the definitions of the bundle
// format, and packages that bundles import. A repository holds copies for editors and `cue vet`; the
// program uses its own.
package format

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed policy.cue controlplane packs
var embedded embed.FS

// folder is the path of the copies in a repository.
const folder = "cue.mod/pkg/stele.dev/policy/"

// File is the path of the copy of the definitions of bundles.
const File = folder + "policy.cue"

// Files returns the packages' files, by the paths of their copies in a repository.
func Files() map[string][]byte {
	files := map[string][]byte{}
	err := fs.WalkDir(embedded, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[folder+p], err = embedded.ReadFile(p)
		return err
	})
	if err != nil {
		panic(err) // they are embedded
	}
	return files
}

// Has reports whether a module path is that of a copy.
func Has(path string) bool { return strings.HasPrefix(path, folder) }
