package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// runQuick builds, vets and tests what changed since a revision, and the packages that import it directly.
func runQuick(base string) error {
	files, err := changedFiles(base)
	if err != nil {
		return err
	}
	packages, err := listPackages("./...")
	if err != nil {
		return err
	}
	changed := changedPackages(packages, files)
	if slices.Contains(files, "go.mod") {
		fmt.Println("go.mod changed: what imports the modules that changed is not tested here, only by .ci/run")
	}
	if len(changed) == 0 {
		fmt.Printf("no package changed since %s\n", base)
		return nil
	}
	names := slices.Concat(changed, importers(packages, changed))
	fmt.Printf("%d packages changed since %s: %s\n%d packages import them\n", len(changed), base, strings.Join(changed, " "), len(names)-len(changed))
	for _, command := range []string{"build", "vet"} {
		start := time.Now()
		if err := show("go", slices.Concat([]string{command}, names)...); err != nil {
			return err
		}
		fmt.Printf("== go %s: %v\n", command, time.Since(start).Round(time.Second))
	}
	found := newResults(os.Stdout)
	used, err := goTest(found, slices.Concat([]string{"-vet=off", "-short"}, names)...)
	if err != nil {
		return err
	}
	found.report(os.Stdout, 5)
	fmt.Printf("== go test -short: %s\n", used)
	if len(found.failed) > 0 {
		return errors.New("tests failed")
	}
	return nil
}

// changedFiles lists the files that differ from those of a revision, and new ones.
func changedFiles(base string) ([]string, error) {
	differ, err := output("git", "diff", "--name-only", base)
	if err != nil {
		return nil, err
	}
	added, err := output("git", "ls-files", "--others", "--exclude-standard")
	return strings.Fields(string(differ) + string(added)), err
}

// changedPackages returns the packages to which changed files belong: that of their folder, or of the next one above.
func changedPackages(packages []goPackage, files []string) []string {
	var changed []string
	for _, file := range files {
		for folder := path.Dir(file); folder != "."; folder = path.Dir(folder) {
			i := slices.IndexFunc(packages, func(p goPackage) bool { return p.folder() == "./"+folder })
			if i >= 0 {
				if !slices.Contains(changed, packages[i].ImportPath) {
					changed = append(changed, packages[i].ImportPath)
				}
				break
			}
		}
	}
	return changed
}

// importers returns the other packages that import one of some, in their tests or else.
func importers(packages []goPackage, some []string) []string {
	var found []string
	for _, p := range packages {
		imports := slices.Concat(p.Imports, p.TestImports, p.XTestImports)
		if !slices.Contains(some, p.ImportPath) && slices.ContainsFunc(imports, func(i string) bool { return slices.Contains(some, i) }) {
			found = append(found, p.ImportPath)
		}
	}
	return found
}

func show(program string, args ...string) error {
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", program, args[0], err)
	}
	return nil
}
