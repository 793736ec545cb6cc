// Command protoc generates Go code from a .proto file in the working directory, as the protoc of Protocol Buffers does with its
// plugins for Go. It compiles the file by a Go package, so that `make generate` needs nothing but Go. go run it with
// -modfile=.ci/tools.mod, which pins that package and the plugins.
//
//	protoc [-grpc] [-I FOLDER] FILE
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	grpc := flag.Bool("grpc", false, "generate services, too")
	folder := flag.String("I", ".", "another folder with files that are imported")
	modfile := flag.String("modfile", "", "the go.mod that pins the plugins")
	flag.Parse()
	plugins := []string{"protoc-gen-go"}
	if *grpc {
		plugins = append(plugins, "protoc-gen-go-grpc")
	}
	if err := generate(flag.Arg(0), *folder, *modfile, plugins); err != nil {
		fmt.Fprintln(os.Stderr, "protoc:", err)
		os.Exit(1)
	}
}

func generate(file, folder, modfile string, plugins []string) error {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{".", folder}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), file)
	if err != nil {
		return err
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(nil, compiled[0]),
	})
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		if err := call(plugin, modfile, request); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// withImports appends a file behind all that it imports. Plugins want each file once, after its imports.
func withImports(files []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor) []*descriptorpb.FileDescriptorProto {
	for _, known := range files {
		if known.GetName() == file.Path() {
			return files
		}
	}
	imports := file.Imports()
	for i := range imports.Len() {
		files = withImports(files, imports.Get(i).FileDescriptor)
	}
	if parsed, ok := file.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return append(files, parsed.FileDescriptorProto()) // has comments
	}
	return append(files, protodesc.ToFileDescriptorProto(file))
}

// call runs a plugin and writes the files that it answers with.
func call(plugin, modfile string, request []byte) error {
	cmd := exec.Command("go", "tool", "-modfile="+modfile, plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return errors.New(answer.GetError())
	}
	for _, file := range answer.File {
		if err := os.WriteFile(filepath.FromSlash(file.GetName()), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
