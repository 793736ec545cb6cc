package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// sbom writes the list of what a program consists of, as SPDX 2.3: Go and the modules that the program itself names.
func (b *build) sbom(p platform, program string) (name string, err error) {
	modules, info, err := modulesOf(program)
	if err != nil {
		return "", err
	}
	digest, err := digestOf(program)
	if err != nil {
		return "", err
	}
	name = b.name(p, ".spdx.json")
	main := newPackage("stele", b.version, "pkg:golang/stele.dev/stele@v"+b.version)
	main.PrimaryPackagePurpose = "APPLICATION"
	main.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: digest}}
	main.PackageSourceInfo = "commit " + b.commit + ", " + p.String()
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: strings.TrimSuffix(name, ".spdx.json"),
		// A namespace is unique to the document, and need not be found anywhere.
		DocumentNamespace: "https://stele.dev/spdx/" + b.version + "/" + p.String() + "/" + digest,
		CreationInfo:      &spdx.CreationInfo{Created: b.time.Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "stele.dev/release"}}},
		Packages:          []*spdx.Package{main, newPackage("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go"))},
		Relationships:     []*spdx.Relationship{relate("DOCUMENT", "DESCRIBES", main.PackageSPDXIdentifier)},
	}
	for _, m := range modules {
		document.Packages = append(document.Packages, packageOf(m))
	}
	for _, other := range document.Packages[1:] {
		document.Relationships = append(document.Relationships, relate(main.PackageSPDXIdentifier, "DEPENDS_ON", other.PackageSPDXIdentifier))
	}
	file, err := b.create(name)
	if err != nil {
		return "", err
	}
	return name, errors.Join(json.Write(document, file, json.Indent("  "), json.EscapeHTML(false)), file.Close())
}

// packageOf returns the package of a module, with the hash that go.sum has.
func packageOf(m *debug.Module) *spdx.Package {
	p := newPackage(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+strings.ReplaceAll(m.Version, "+", "%2B"))
	if m.Sum != "" {
		p.PackageComment = "go.sum " + m.Sum
	}
	return p
}

// forbidden matches what identifiers of SPDX must not have.
var forbidden = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func newPackage(name, version, purl string) *spdx.Package {
	const unknown = "NOASSERTION"
	return &spdx.Package{
		PackageName: name, PackageVersion: version, PackageSPDXIdentifier: common.ElementID("Package-" + forbidden.ReplaceAllString(name+"-"+version, "-")),
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
		PackageExternalReferences: []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: "purl", Locator: purl}},
	}
}

func relate(a common.ElementID, how string, b common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.DocElementID{ElementRefID: a}, RefB: common.DocElementID{ElementRefID: b}, Relationship: how}
}

// digestOf returns the SHA-256 of a file in hexadecimal digits.
func digestOf(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
