// A device plugin whose devices exist only by name: device-plugin RESOURCE COUNT FILE.
//
// It registers with the kubelet whenever the kubelet has a new socket. FILE is read again and again,
// and may be absent: its words are devices that are unhealthy, or "absent", for which the plugin
// leaves the kubelet, as its pod does on a node when it is evicted or updated.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	pause  = 300 * time.Millisecond
	absent = "absent"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	resource, file string
	count          int
}

func main() {
	count, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	own := &plugin{resource: os.Args[1], count: count, file: os.Args[3]}
	for ; ; time.Sleep(pause) {
		if err := own.serve(); err != nil {
			log.Print(err)
		}
	}
}

// serve registers and returns when this registration is over.
func (own *plugin) serve() error {
	if slices.Contains(own.words(), absent) {
		return nil
	}
	kubelet, err := os.Stat(api.KubeletSocket)
	if err != nil {
		return nil
	}
	name := strings.NewReplacer("/", "-", ".", "-").Replace(own.resource) + ".sock"
	_ = os.Remove(api.DevicePluginPath + name)
	listener, err := net.Listen("unix", api.DevicePluginPath+name)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, own)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	if err := own.register(name); err != nil {
		return err
	}
	log.Printf("registered %d %s", own.count, own.resource)
	for ; ; time.Sleep(pause) {
		now, err := os.Stat(api.KubeletSocket)
		if err != nil || !os.SameFile(kubelet, now) || !kubelet.ModTime().Equal(now.ModTime()) {
			return nil
		}
		// A kubelet that starts removes the sockets of all plugins.
		if _, err := os.Stat(api.DevicePluginPath + name); err != nil {
			return nil
		}
		if slices.Contains(own.words(), absent) {
			return nil
		}
	}
}

func (own *plugin) register(name string) error {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, plain)
	if err != nil {
		return err
	}
	defer connection.Close()
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request := api.RegisterRequest{Version: api.Version, Endpoint: name, ResourceName: own.resource}
	_, err = api.NewRegistrationClient(connection).Register(limited, &request)
	return err
}

func (own *plugin) words() []string {
	text, _ := os.ReadFile(own.file)
	return strings.Fields(string(text))
}

func (own *plugin) GetDevicePluginOptions(
	context.Context, *api.Empty,
) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch sends all devices, and again whenever the health of one has changed.
func (own *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	var sent []string
	for first := true; ; first = false {
		if words := own.words(); first || !slices.Equal(words, sent) {
			if err := stream.Send(&api.ListAndWatchResponse{Devices: own.devices(words)}); err != nil {
				return err
			}
			sent = words
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (own *plugin) devices(unhealthy []string) []*api.Device {
	var all []*api.Device
	for number := range own.count {
		device := api.Device{ID: fmt.Sprintf("gpu%d", number), Health: api.Healthy}
		if slices.Contains(unhealthy, device.ID) {
			device.Health = api.Unhealthy
		}
		all = append(all, &device)
	}
	return all
}

// Allocate names the devices in the container's environment, and in the log.
func (own *plugin) Allocate(
	_ context.Context, request *api.AllocateRequest,
) (*api.AllocateResponse, error) {
	var answer api.AllocateResponse
	for _, each := range request.ContainerRequests {
		names := slices.Sorted(slices.Values(each.DevicesIds))
		log.Printf("allocate %v", names)
		one := api.ContainerAllocateResponse{Envs: map[string]string{"DEVICES": strings.Join(names, ",")}}
		answer.ContainerResponses = append(answer.ContainerResponses, &one)
	}
	return &answer, nil
}
