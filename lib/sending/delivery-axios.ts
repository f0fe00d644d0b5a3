import type { HttpService } from '@nestjs/axios';
import type { AxiosRequestConfig, InternalAxiosRequestConfig } from 'axios';

/** Creates the module's own HttpService. */
export async function createHttpService(): Promise<HttpService> {
  const [axios, { HttpService }] = await Promise.all([import('axios'), import('@nestjs/axios')]);
  // @nestjs/axios 4 names the declarations of axios for CommonJS, version 12 those for ES modules.
  return new HttpService(deliveryAxios(axios) as never);
}

/** Creates the axios instance below the module's own HttpService. */
function deliveryAxios({ Axios }: typeof import('axios')): InstanceType<typeof Axios> {
  class DeliveryAxios extends Axios {
    constructor() {
      super({ headers: {} as never });
      // HttpService calls it without its object.
      this.request = this.request.bind(this);
    }

    /** Without interceptors and defaults, a complete request needs nothing of the core of axios, which takes longer than the request. */
    override async request(config: AxiosRequestConfig): Promise<never> {
      const { request, response } = this.interceptors;
      const isIntercepted = request.handlers?.length !== 0 || response.handlers?.length !== 0;
      const hasDefaults = Object.keys(this.defaults.headers).length !== 0;
      if (isIntercepted || hasDefaults || typeof config.adapter !== 'function') {
        return super.request(config);
      }
      return config.adapter(config as InternalAxiosRequestConfig) as Promise<never>;
    }
  }
  return new DeliveryAxios();
}
