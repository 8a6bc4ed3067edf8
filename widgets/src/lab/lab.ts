// JupyterLab's extension: files that rtlab reads open in an Explorer of their own tab.
//
// JupyterLab loads a "federated module": a script that puts a container with `init` and `get` on the page. Bundlers make
// large ones; this one takes what it needs of JupyterLab's shared modules itself, so that no module of theirs is carried.

interface Shared {
  get(): Promise<() => unknown>;
}
type Scope = Record<string, Record<string, Shared>>;

/** What is used of JupyterLab's own classes, which have no types here. */
// biome-ignore lint/suspicious/noExplicitAny: classes of the host, of whichever release it is
type Host = any;

/** Names that people give to layers of an engine, and to builds that rtlab saved. */
const ENGINE = "(^|[._-])(layers?|layer_?info|engine|graph|build)([._-].*)?\\.json$";
const FACTORY = "rtlab";
const ICON = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16"><g class="jp-icon3" fill="#616161">
<rect x="1" y="1" width="6" height="4" rx="1"/><rect x="1" y="6" width="6" height="4" rx="1"/>
<rect x="1" y="11" width="6" height="4" rx="1"/><rect x="9" y="3" width="6" height="10" rx="1"/></g></svg>`;

const WIDGET_VIEW = "application/vnd.jupyter.widget-view+json";

/** A page that is loaded again finds the Explorer of its kernel, with all variants. */
const code = (path: string): string => {
  const name = JSON.stringify(path.slice(path.lastIndexOf("/") + 1));
  return `try:
    explorer
except NameError:
    import rtlab
    explorer = rtlab.explore(${name})
explorer`;
};

let scope: Scope = {};

/** A module that the host shares; of several releases the one that is loaded already, which is the host's own. */
async function load(name: string): Promise<Host> {
  const releases = Object.values(scope[name] ?? {}) as (Shared & { loaded?: unknown })[];
  const release = releases.find(({ loaded }) => loaded) ?? releases[0];
  if (!release) throw new Error(`JupyterLab shares no module "${name}"; rtlab's tabs need JupyterLab 4`);
  return (await release.get())();
}

async function extension(): Promise<unknown> {
  const [application, apputils, base, docregistry, notebook, rendermime, outputarea, ui, manager] =
    await Promise.all(
      [
        "@jupyterlab/application",
        "@jupyterlab/apputils",
        "@jupyter-widgets/base",
        "@jupyterlab/docregistry",
        "@jupyterlab/notebook",
        "@jupyterlab/rendermime",
        "@jupyterlab/outputarea",
        "@jupyterlab/ui-components",
        "@jupyter-widgets/jupyterlab-manager",
      ].map(load),
    );

  /** Nothing of the file is read: the kernel reads it. Nothing is ever written to it. */
  const models = {
    name: "rtlab-path",
    contentType: "file",
    fileFormat: null,
    collaborative: false,
    isDisposed: false,
    dispose() {},
    preferredLanguage: () => "python",
    createNew(options: Host): Host {
      const model = new docregistry.DocumentModel(options);
      model.readOnly = true;
      return model;
    },
  };

  class Factory extends docregistry.ABCWidgetFactory {
    readonly #rendermime: Host;

    constructor(options: Host, mimes: Host) {
      super(options);
      this.#rendermime = mimes;
    }

    createNewWidget(context: Host): Host {
      // Saving would write an empty text over the file.
      context.save = async () => {};
      const { sessionContext } = context;
      const mimes = this.#rendermime.clone();
      const content = new outputarea.SimplifiedOutputArea({
        model: new outputarea.OutputAreaModel({ trusted: true }),
        rendermime: mimes,
      });
      content.addClass("rtlab-document");
      const unsaved = { sessionContext, saveState: { connect() {} }, model: { getMetadata() {} } };
      const renderer = manager.registerWidgetManager(unsaved, mimes, [].values());
      const document = new docregistry.DocumentWidget({ content, context });
      document.toolbar.hide();
      const run = (): void => {
        if (sessionContext.session?.kernel)
          outputarea.OutputArea.execute(code(context.path), content, sessionContext).catch((error: unknown) =>
            console.warn(error),
          );
      };
      sessionContext.ready.then(run);
      // A kernel that was started again knows no Explorer; one that restarts by itself comes here too.
      sessionContext.kernelChanged.connect((_: unknown, { oldValue }: Host) => oldValue && run());
      sessionContext.statusChanged.connect((_: unknown, status: string) => {
        if (status === "restarting" || status === "autorestarting") content.model.clear();
      });
      document.disposed.connect(() => renderer.dispose());
      return document;
    }
  }

  /** A widget without a kernel is shown by the still picture beside it, in place of an error. */
  const withStill = (factory: Host, mimes: Host): Host => ({
    ...factory,
    createRenderer(options: Host): Host {
      const renderer = factory.createRenderer(options);
      const render = renderer.renderModel.bind(renderer);
      renderer.renderModel = async (model: Host): Promise<void> => {
        await render(model);
        if (!model.data["text/html"] || !renderer.node.textContent.startsWith("Error displaying widget"))
          return;
        const still = mimes.createRenderer("text/html");
        await still.renderModel(model);
        renderer.node.replaceChildren(still.node);
      };
      return renderer;
    },
  });
  /** Outputs of an opened notebook are there before its kernel is, those of cells that run come after it. */
  const keepStills = (mimes: Host): void => {
    const placeholder = mimes.getFactory(WIDGET_VIEW);
    if (placeholder) mimes.addFactory(withStill(placeholder, mimes), -10);
    const add = mimes.addFactory.bind(mimes);
    mimes.addFactory = (factory: Host, rank?: number): void =>
      add(factory.mimeTypes.includes(WIDGET_VIEW) ? withStill(factory, mimes) : factory, rank);
  };

  return {
    id: "rtlab:explorer",
    description: "Opens ONNX models, engines and saved studies in rtlab's Explorer.",
    autoStart: true,
    requires: [rendermime.IRenderMimeRegistry],
    // The registry of widgets is there once their renderer is.
    optional: [base.IJupyterWidgetRegistry, application.ILayoutRestorer, notebook.INotebookTracker],
    activate(app: Host, mimes: Host, _registry: Host, restorer: Host, notebooks: Host): void {
      notebooks?.forEach(({ content }: Host) => {
        keepStills(content.rendermime);
      });
      notebooks?.widgetAdded.connect((_: unknown, { content }: Host) => keepStills(content.rendermime));
      const { docRegistry } = app;
      const icon = new ui.LabIcon({ name: "rtlab:graphs", svgstr: ICON });
      const file = {
        icon,
        mimeTypes: ["application/octet-stream"],
        fileFormat: "base64",
        contentType: "file",
      };
      docRegistry.addFileType({ ...file, name: "onnx", displayName: "ONNX model", extensions: [".onnx"] });
      docRegistry.addFileType({ ...file, name: "rtlab", displayName: "rtlab study", extensions: [".rtlab"] });
      docRegistry.addFileType({
        icon,
        name: "tensorrt-layers",
        displayName: "Layers of an engine",
        extensions: [".json"],
        mimeTypes: ["application/json"],
        pattern: ENGINE,
        fileFormat: "text",
        contentType: "file",
      });
      docRegistry.addModelFactory(models);
      const own = ["onnx", "rtlab", "tensorrt-layers"];
      const factory = new Factory(
        {
          name: FACTORY,
          label: "rtlab Explorer",
          modelName: models.name,
          fileTypes: [...own, "json"],
          defaultFor: own,
          readOnly: true,
          canStartKernel: true,
          preferKernel: true,
          shutdownOnClose: true,
        },
        mimes,
      );
      const tabs = new apputils.WidgetTracker({ namespace: FACTORY });
      factory.widgetCreated.connect((_: unknown, tab: Host) => void tabs.add(tab));
      docRegistry.addWidgetFactory(factory);
      restorer?.restore(tabs, {
        command: "docmanager:open",
        args: ({ context }: Host) => ({ path: context.path, factory: FACTORY }),
        name: ({ context }: Host) => context.path,
      });
    },
  };
}

const host = window as Host;
host._JUPYTERLAB ??= {};
host._JUPYTERLAB.rtlab = {
  init(shared: Scope): void {
    scope = shared;
  },
  async get(): Promise<() => unknown> {
    const plugin = await extension();
    return () => ({ __esModule: true, default: plugin });
  },
};
