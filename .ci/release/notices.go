package main

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"golang.org/x/mod/module"
)

// noticesName is the name of the file with the licenses of others.
const noticesName = "THIRD_PARTY_NOTICES.txt"

// licenseNames matches files of a module with the terms under which it is used.
var licenseNames = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([._-].*)?$`)

// modulesOf returns the modules of a program besides its own, as the program itself names them.
func modulesOf(program string) ([]*debug.Module, *debug.BuildInfo, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, nil, err
	}
	var found []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		found = append(found, m)
	}
	return found, info, nil
}

// embedded are folders of the source, with files of others that are in the program.
var embedded = []string{"cmd/stele/internal/console/page/vendor"}

// noticesOf returns the licenses of Go, of all modules of a program and of what is embedded in it, which whoever passes the program on has to pass on, too.
func noticesOf(program, root string) ([]byte, error) {
	modules, info, err := modulesOf(program)
	if err != nil {
		return nil, err
	}
	cache, err := goEnv("GOMODCACHE")
	if err != nil {
		return nil, err
	}
	goRoot, err := goEnv("GOROOT")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "stele has parts of the following modules, under these terms.\n")
	if err := appendLicenses(&text, "Go "+info.GoVersion, goRoot); err != nil {
		return nil, err
	}
	for _, m := range modules {
		name, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		version, err := module.EscapeVersion(m.Version)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Path, err)
		}
		if err := appendLicenses(&text, m.Path+" "+m.Version, filepath.Join(cache, name+"@"+version)); err != nil {
			return nil, err
		}
	}
	for _, folder := range embedded {
		if err := appendLicenses(&text, folder, filepath.Join(root, folder)); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}

// appendLicenses appends the licenses in a folder.
func appendLicenses(text *bytes.Buffer, name, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if !licenseNames.MatchString(e.Name()) || !e.Type().IsRegular() {
			continue
		}
		license, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(text, "\n%s\n%s: %s\n\n%s\n", strings.Repeat("=", 80), name, e.Name(), bytes.TrimSpace(license))
	}
	if !found {
		fmt.Fprintf(text, "\n%s\n%s: it has no file with a license\n", strings.Repeat("=", 80), name)
	}
	return nil
}

// goEnv returns a variable of `go env`.
func goEnv(name string) (string, error) {
	out, err := exec.Command("go", "env", name).Output()
	if err != nil {
		return "", fmt.Errorf("go env %s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}
