package vk

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/vkattn/vkattn/vk/internal/abi"
)

// Severity is a VkDebugUtilsMessageSeverityFlagBitsEXT.
type Severity uint32

// The severities that are reported.
const (
	SeverityWarning Severity = 0x100
	SeverityError   Severity = 0x1000
)

// String returns warning or error.
func (s Severity) String() string {
	switch s {
	case SeverityWarning:
		return "warning"
	case SeverityError:
		return "error"
	}
	return fmt.Sprintf("severity(%#x)", uint32(s))
}

// MessageTypes is a VkDebugUtilsMessageTypeFlagsEXT.
type MessageTypes uint32

// The types that are reported.
const (
	MessageValidation  MessageTypes = 2
	MessagePerformance MessageTypes = 4
)

// Message is one message of the validation layers.
type Message struct {
	Severity Severity
	Types    MessageTypes
	ID       string // for example VUID-vkCmdDispatch-None-08114
	Number   int32
	Text     string
}

// String returns severity, id and text.
func (m Message) String() string { return fmt.Sprintf("%v %s: %s", m.Severity, m.ID, m.Text) }

// The driver knows a receiver of messages by number, never by pointer.
var (
	receivers    sync.Map // uint64 → receiver
	lastReceiver atomic.Uint64
)

// receiver takes a message, and what the module declares that the thread makes a pipeline of meanwhile.
type receiver func(Message, declares)

func addReceiver(f receiver) uint64 {
	id := lastReceiver.Add(1)
	receivers.Store(id, f)
	return id
}

// modules is what the module declares that a thread makes a pipeline of: [declares] by [abi.Thread].
var modules sync.Map

// onMessage is a PFN_vkDebugUtilsMessengerCallbackEXT. The layers call it on the thread that made the call they object to, and the driver
// on any.
func onMessage(severity, types, data, receiver uintptr) (abort uintptr) {
	d := abi.At[abi.DebugUtilsMessengerCallbackDataEXT](data)
	m := Message{Severity: Severity(uint32(severity)), Types: MessageTypes(uint32(types)), Number: d.MessageIdNumber,
		ID: abi.Text(d.PMessageIdName), Text: abi.Text(d.PMessage)}
	var module declares
	if x, ok := modules.Load(abi.Thread()); ok {
		module = x.(declares)
	}
	deliver(uint64(receiver), m, module)
	return 0
}

var messageCallback = sync.OnceValue(func() uintptr { return abi.Callback(onMessage) })

// describeMessenger says what a receiver hears, on memory of zeros.
func describeMessenger(m *abi.DebugUtilsMessengerCreateInfoEXT, receiver uint64) {
	m.Init()
	m.MessageSeverity = abi.DebugUtilsMessageSeverityWarningBitEXT | abi.DebugUtilsMessageSeverityErrorBitEXT
	// Not the general type: with it the loader reports drivers that have nothing to do with us.
	m.MessageType = abi.DebugUtilsMessageTypeValidationBitEXT | abi.DebugUtilsMessageTypePerformanceBitEXT
	m.PfnUserCallback, m.PUserData = messageCallback(), uintptr(receiver)
}

// deliver hands a message to its receiver, if that is still there.
func deliver(id uint64, m Message, module declares) {
	if f, ok := receivers.Load(id); ok {
		f.(receiver)(m, module)
	}
}
