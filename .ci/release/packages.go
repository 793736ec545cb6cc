package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// What packages run, as root. A package starts nothing by itself: an administrator first writes the settings. An upgrade restarts
// a service that runs. A removal stops it, and keeps the data.
const (
	afterInstall = `#!/bin/sh
set -e
systemd-sysusers stele.conf
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl try-restart stele.service || echo "stele.service does not start; see why: journalctl -u stele -n 50" >&2
fi
`
	beforeRemoval = `#!/bin/sh
set -e
case "$1" in
remove | 0) if [ -d /run/systemd/system ]; then systemctl disable --quiet --now stele.service || true; fi ;;
esac
`
	afterRemoval = `#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
`
)

// packages writes the packages of a platform, and returns their names.
func (b *build) packages(p platform, t *tree, notices []byte) (names []string, err error) {
	work, err := os.MkdirTemp("", "packages")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	file := func(name, text string) string {
		name = filepath.Join(work, name)
		err = errors.Join(err, os.WriteFile(name, []byte(text), 0o755))
		return name
	}
	scripts := nfpm.Scripts{PostInstall: file("after-install", afterInstall), PreRemove: file("before-removal", beforeRemoval), PostRemove: file("after-removal", afterRemoval)}
	terms := file("copyright", string(notices))
	if err != nil {
		return nil, err
	}
	for _, format := range []string{"deb", "rpm"} {
		name := b.name(p, "."+format)
		if err := b.pack(format, name, p, b.contents(format, t, terms), scripts); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// contents returns the files of a package.
func (b *build) contents(format string, t *tree, terms string) files.Contents {
	info := func(mode fs.FileMode) *files.ContentFileInfo {
		return &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: b.time}
	}
	contents := files.Contents{{Source: terms, Destination: "/usr/share/doc/stele/copyright", FileInfo: info(0o644)}}
	for _, e := range t.entries {
		c := &files.Content{Source: e.source, Destination: e.path, FileInfo: info(e.mode)}
		switch {
		case e.target != "":
			c.Source, c.Type, c.FileInfo = e.target, files.TypeSymlink, info(0o777)
		case strings.HasPrefix(e.path, "/etc/"):
			c.Type = files.TypeConfigNoReplace
		case format == "deb" && strings.Contains(e.path, "/zsh/"):
			c.Destination = "/usr/share/zsh/vendor-completions/" + filepath.Base(e.path) // where Debian's zsh looks
		}
		contents = append(contents, c)
	}
	return contents
}

// pack writes a package.
func (b *build) pack(format, name string, p platform, contents files.Contents, scripts nfpm.Scripts) error {
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "stele", Arch: p.arch, Platform: p.os, Version: b.version, Release: "1", Section: "admin", Priority: "optional", MTime: b.time,
		Maintainer: "The authors of stele", Description: "A declarative control plane that speaks the Kubernetes API.\nPolicies are written in CUE, and every write is an event in a log.",
		DisableGlobbing: true,
		Overridables:    nfpm.Overridables{Contents: contents, Scripts: scripts, Depends: []string{"systemd"}},
	})
	info.RPM.BuildHost, info.RPM.Packager = "localhost", info.Maintainer // the default is the name of this machine
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	file, err := b.create(name)
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, file), file.Close())
}
