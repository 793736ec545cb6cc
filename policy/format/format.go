// Package format has the CUE packages that come with the program: the definitions behind bundles, and packages that
// bundles import. A repository holds a copy of them for editors and for `cue vet`; the program uses its own.
package format

import (
	"embed"
	"io/fs"
	"strings"
)

//go:embed policy.cue controlplane
var embedded embed.FS

// folder is where a repository holds its copies.
const folder = "cue.mod/pkg/stele.dev/policy/"

// File is where a repository holds its copy of the definitions behind bundles.
const File = folder + "policy.cue"

// Files returns the files that come with the program, by the paths of a repository's copies.
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

// Has reports whether a path of a module is that of a copy.
func Has(path string) bool { return strings.HasPrefix(path, folder) }
